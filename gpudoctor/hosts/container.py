"""Into a container, through the host it runs on."""

import shlex
from collections.abc import Callable

from gpudoctor.model.place import ContainerRef


def enter(ref: ContainerRef) -> Callable[[str], str]:
    """Return how sh text for the host becomes sh text inside the container.

    Nothing of the host's environment goes with it, as the container could read that. `ssh:`
    containers have a transport of their own and are not entered this way.
    """
    name = shlex.quote(ref.name)

    def carried(text: str) -> str:
        inside = f"sh -c {shlex.quote(text)}"
        if ref.kind == "lxc":
            return (
                "if command -v lxc-attach >/dev/null; "
                f"then exec lxc-attach --clear-env -n {name} -- {inside}; "
                f'else exec env -i PATH="$PATH" pct exec {name} -- {inside}; fi'
            )
        return f"exec {ref.kind} exec -i {name} {inside}"

    return carried
