"""The system UUID of /sys/class/dmi/id/product_uuid: an identity, or what boards have instead."""

import re

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What makers of boards left in place of one, in both byte orders that SMBIOS has known.
_PLACEHOLDERS = {
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "03020100-0504-0706-0809-0a0b0c0d0e0f",
    "00010203-0405-0607-0809-0a0b0c0d0e0f",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "78563412-3412-7856-90ab-cddeefaabbcc",
}


def system_uuid(text: str) -> str:
    """Return the UUID in lower case; nothing where it is none, or one that many boards share."""
    found = text.strip().lower()
    if not _UUID.fullmatch(found) or found in _PLACEHOLDERS:
        return ""
    # Only zeros and only ones mean that it is not set; other boards repeat another byte.
    return found if len(set(bytes.fromhex(found.replace("-", "")))) > 1 else ""
