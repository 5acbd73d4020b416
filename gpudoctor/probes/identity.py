"""Who the host is: name, machine id, boot id, kernel, system, product, system UUID."""

from gpudoctor.formats.system_uuid import system_uuid
from gpudoctor.model import Evidence, Files, Reader
from gpudoctor.model.audited import Identity

_DMI = "/sys/class/dmi/id"
HOST_IDENTITY = Files(
    "host-identity",
    (
        "/proc/sys/kernel/hostname",
        "/etc/machine-id",
        "/proc/sys/kernel/random/boot_id",
        "/proc/sys/kernel/osrelease",
        "/etc/os-release",
        f"{_DMI}/sys_vendor",
        f"{_DMI}/product_name",
        f"{_DMI}/product_uuid",
    ),
)


def _identity(evidence: Evidence) -> Identity:
    texts = evidence.texts()
    fields = dict(
        line.split("=", 1) for line in texts.get("/etc/os-release", "").split("\n") if "=" in line
    )
    vendor, product = texts.get(f"{_DMI}/sys_vendor", ""), texts.get(f"{_DMI}/product_name", "")
    return Identity(
        hostname=texts.get("/proc/sys/kernel/hostname", "").strip(),
        machine_id=texts.get("/etc/machine-id", "").strip(),
        boot_id=texts.get("/proc/sys/kernel/random/boot_id", "").strip(),
        kernel=texts.get("/proc/sys/kernel/osrelease", "").strip(),
        system=fields.get("PRETTY_NAME", "").strip('"'),
        product=f"{vendor} {product}".strip(),
        system_uuid=system_uuid(texts.get(f"{_DMI}/product_uuid", "")),
    )


IDENTITY: Reader[Identity] = Reader("host-identity", (HOST_IDENTITY,), _identity, tolerant=True)
