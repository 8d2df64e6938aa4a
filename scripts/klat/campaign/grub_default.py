"""Which item of the menu GRUB boots by default: get_entry_number() and grub_menu_execute_entry() in
grub-core/normal/menu.c of GRUB's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from klat.base.errors import KlatError
from klat.campaign.grub_conditions import NUMBER, number_of
from klat.campaign.grub_item import MenuItem

CURE = (
    "choose one with GRUB_DEFAULT in /etc/default/grub, or if that is saved, with grub-set-default"
)
_FIRST = re.compile(r"((?:[^>]|>>)*)>?(.*)", re.DOTALL)


def default_item(items: Sequence[MenuItem], default: str, is_of_fedora: bool) -> MenuItem:
    """The item that GRUB boots. If no item of a menu has the name, GRUB boots the first item. A default in a submenu
    is a path.

    KlatError if the item is known only during the boot, or if an item that klat cannot read may have the name.
    """
    menu, rest = items, default
    while True:
        path = rest
        name, rest = _split(path)
        number = _number(path, is_of_fedora)
        named = [item for item in menu if name in (item.identity, item.title)]
        if is_of_fedora:  # an id is a word, and comes before any title
            named.sort(key=lambda item: name != item.identity)
        if named and (number is None or is_of_fedora):
            chosen = named[0]
            doubtful = [chosen]
        elif not menu:
            raise KlatError("GRUB's menu has no entry")
        else:
            at = number if number is not None and number < len(menu) else 0
            chosen = menu[at]
            doubtful = list(menu[: at + 1])
            if number is None and name:
                doubtful += [item for item in menu if not item.title]
        for item in doubtful:
            if not item.sure:
                why = item.why or "it is known only during the boot what this line adds to the menu"
                raise KlatError(
                    f"{item.place()}: {why}, so klat does not know the default of GRUB, {default!r}; {CURE}, by its id"
                )
        if not chosen.items:
            return chosen
        if chosen.default is None:
            raise KlatError(
                f"{chosen.place()}: the default of this submenu is known only during the boot; {CURE}"
            )
        menu, rest = chosen.items, chosen.default or rest


def identified(items: Sequence[MenuItem], above: str = "") -> Iterator[tuple[str, MenuItem]]:
    """All items but submenus, with unique paths. A path consists of ids. If an earlier item has the same
    id, the title or the number replaces it."""
    taken: set[str] = set()
    for number, item in enumerate(items):
        names = (item.identity, item.title, str(number))
        name = next((name for name in names if name not in taken), f"#{number}")
        taken.add(name)
        if item.items is None:
            yield above + name, item
        else:
            yield from identified(item.items, f"{above}{name}>")


def _split(path: str) -> tuple[str, str]:
    """The first name of a path, and the rest. In a name, > is doubled."""
    match = _FIRST.fullmatch(path)
    return (match[1].replace(">>", ">"), match[2]) if match else (path, "")


def _number(path: str, is_of_fedora: bool) -> int | None:
    """The number at the beginning of the path. In Fedora and its relatives, GRUB accepts no text after the number."""
    match = (NUMBER.fullmatch if is_of_fedora else NUMBER.match)(path)
    return number_of(match) if match else None
