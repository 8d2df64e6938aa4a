"""The grammar of GRUB's scripts. GRUB's emulator (grub-emu 2.06) printed the expected words."""

import re
from pathlib import Path

import pytest

from klat.base.errors import KlatError
from klat.campaign.grub_execution import holds
from klat.campaign.grub_menu import GrubMenu
from klat.campaign.grub_script import Command, GrubSyntaxError, Variables, expanded, parse

VALUES: Variables = {"v": "a  b", "around": " a b ", "tab": "a\tb", "late": None}


@pytest.mark.parametrize(
    "text, words",
    [
        ("show x \\\n  y", ["x", "y"]),
        ("show x\\\ny", ["xy"]),
        ("show pre${v}post", ["prea", "bpost"]),
        ("show pre${around}post", ["prea", "bpost"]),
        ('show $unset "" "$unset" x', ["", "", "x"]),
        (r'''show "a\nb" 'c\d' e\ f "g\"h"''', ["a\\nb", "c\\d", "e f", 'g"h']),
        ("show $tab", ["a", "b"]),
        ("show x#y # comment", ["x#y"]),
        (r'show $"i18n\"x $v"', ['i18n"x a  b']),
        ('show a=b"c d"', ["a=bc d"]),
        ('show "$around"', [" a b "]),
        ("show if then", ["if", "then"]),
        ("show 'a\nb'", ["a\nb"]),
        ("show a$late", None),
    ],
)
def test_words(text, words):
    (command,) = parse(text)
    assert isinstance(command, Command)
    assert expanded(command.words[1:], VALUES) == words


@pytest.mark.parametrize(
    "text, line",
    [
        ("set x=1\necho 'open", 2),
        ("menuentry x {\necho y\n", 3),
        ("if true; then\n  echo x\nelse\n", 4),
        ("echo a }\n", 1),
        ("function f { echo x }\n", 1),
        ("echo a & echo b\n", 1),
        ("echo $\n", 1),
        ('true\necho "a$ b"\n', 2),
        ("echo a; ; echo b\n", 1),
        ("true\nmenuentry x {\n}\n", 3),
        ("if true; then\n\nfi\n", 3),
        ("fi\n", 1),
        ("if true; then\nfunction f {\ntrue\n}\nfi\n", 2),
        ("menuentry A {\nfunction f {\ntrue\n}\n}\n", 2),
    ],
)
def test_what_grub_cannot_parse_has_a_line(text, line):
    with pytest.raises(GrubSyntaxError, match=f"^line {line}: "):
        parse(text)


@pytest.mark.parametrize(
    "text, truth",
    [
        ("1 = 01", False),
        ("1 -eq 01 -a x != y", True),
        ("! -z a", True),
        ("a = b -o c = c", True),
        ("a = b -o c = c -a d = e", False),
        ("late = x", None),
        ("late = x -a a = b", False),
        ("late = x -o a = a", True),
        ("-f there", True),
        ("-f late -o a = b", None),
        ("( a = a )", True),
        ("! ( a = a -a late = x -o b = b )", False),
        ("a = b -o ( a = a -a ( -z a ) )", False),
        ("( late = x -a a = a )", None),
        ("! = ! -a ( != )", True),
        ("a -nt b", None),
        ("3 -pgt 2 -a a = b", False),
        ("010 -eq 8 -a 0x1F -eq 31 -a 08 -eq 8", True),
        ("0X10 -eq 16", False),
        ("-010 -eq -8 -a -1 -lt 0", True),
        ("x -eq 0 -a 1x -eq 1", True),
    ],
)
def test_conditions(text, truth):
    words = [None if word == "late" else word for word in re.findall(r"\S+", text)]
    assert holds(words, lambda name: True) is truth


def executed(directory: Path, script: str) -> GrubMenu:
    (directory / "grub.cfg").write_text(script.replace("; }", "\n}"))
    menu = GrubMenu(directory, {}, directory / "root")
    menu.execute()
    return menu


def value(directory: Path, script: str) -> str | None:
    """The value of the variable v after the script."""
    return executed(directory, script).variables.get("v", "")


NESTED = "for s in a b; do for t in c d; do v=$v$s$t; {}; done; v=${{v}}x; done"


@pytest.mark.parametrize(
    "script, expected",
    [
        ("function f { if [ $1 = y ]; then v=a; return 0; fi; v=b; }; f y", "a"),
        ("for s in a b; do v=$s; if [ $s = a ]; then break; fi; done", "a"),
        ("for s in a b; do if [ $s = b ]; then continue; fi; v=$s; done", "a"),
        ("function f { shift; v=$1; }; f b a", "a"),
        ("function f { shift 3; v=$1; }; f b a", "b"),
        ("function f { setparams a; v=$1$2; }; f b d", "a"),
        ("function f { x=1; }; f y; v=a$1", "a"),
        ('function f { v="$#$*"; }; f a b', "2a b"),
        (NESTED.format("break"), "acxbcx"),
        (NESTED.format("break 2"), "ac"),
        (NESTED.format("break 9"), "ac"),
        (NESTED.format("continue 2"), "acbc"),
        ("function f { for s in a b; do v=$v$s; return; done; v=x; }; f; v=${v}y", "ay"),
        ("function f { false; return; }; if f; then v=a; else v=b; fi", "b"),
        ("function f { break; v=c; }; for s in a b; do f; v=$v$s; done", "cb"),
        ("return; v=a; break; v=${v}b", "ab"),
        ("if break; then v=a; else v=b; fi", "a"),
        ("function f { return ²; }; f; v=a", "a"),
        ("until [ x$v = xaaa ]; do v=a$v; done", "aaa"),
        ("while [ x$v != xaa ]; do v=a$v; done; v=${v}b", "aab"),
        ("while true; do v=a$v; if [ $v = aa ]; then break; fi; done", "aa"),
        ("while [ x$v != xaa ]; do v=a$v; continue; v=b; done", "aa"),
        ("if while false; do v=b; done; then v=a; else v=c; fi", "c"),
        ("if until true; do v=b; done; then v=a; else v=c; fi", "a"),
        ("v=$grub_cpu-$grub_platform", "x86_64-efi"),
        ("for s in a b; do break 0; v=$v$s; done", "ab"),
        ("function f { for s in a; do false; done; }; if f; then v=a; else v=b; fi", "b"),
        ("for s in a b; do false; continue; done; v=$?", "0"),
        ("false; for s in; do false; done; v=$?", "0"),
        ("while true; do false; break; done; v=$?", "0"),
        ("if false; then false; fi; v=$?", "0"),
        ("function f { return 4; }; function g { f; }; if g; then v=a; else v=$?; fi", "4"),
        ("function f { return 4; }; while f; do true; done; v=$?; if f; then f; fi; v=$v$?", "40"),
        ("function f { return 4; }; ! f; v=$?; if true; then f; fi; v=$v$?", "04"),
        ("for s in a b; do if false; then v=a; elif break; then v=b; fi; v=c; done; v=$v$s", "a"),
        (
            'w=a; if [ -z "${w}"]; then v=a; elif test -z x ]; then v=b; elif [ $w; then v=c; fi',
            "c",
        ),
        ("if source /missing; then v=a; else v=b; fi", "a"),
        ("if keystatus --shift; then v=a; elif sleep --interruptible 3; then v=b; fi", "b"),
    ],
)
def test_what_leaves_functions_and_loops(tmp_path, script, expected):
    """The expected values are those of grub-emu 2.06."""
    assert value(tmp_path, script) == expected


MAYBE = "if search x; then {}; fi"


@pytest.mark.parametrize(
    "script",
    [
        f"function f {{ {MAYBE.format('return')}; v=a; }}; f",
        f"function f {{ for s in a; do {MAYBE.format('return')}; done; }}; f",
        f"for s in a b; do {MAYBE.format('v=b; break')}; v=b; done",
        f"for s in a b; do {MAYBE.format('continue')}; done",
        f"for s in a b; do for t in c d; do {MAYBE.format('break 2')}; done; done",
        f"for s in a; do if true; then {MAYBE.format('break')}; fi; done",
        "for s in a b; do if search x; then v=a; else break; fi; done",
        "for s in a; do if search x; then v=a; elif break; then v=b; fi; done",
        "for s in a b; do break $cmdpath; v=b; done",
        "for k in *; do v=b; break; done",
        "while search x; do break; done",
    ],
)
def test_an_exit_that_only_the_boot_decides_is_refused_with_its_line(tmp_path, script):
    with pytest.raises(KlatError, match="grub.cfg, line [23]: only the boot decides"):
        value(tmp_path, f"true\n{script}\n")


@pytest.mark.parametrize(
    "script, expected",
    [
        ("if search x; then for s in a b; do break; done; fi; v=$s", None),
        ("function f { return; }; if search x; then f; v=a; else v=a; fi", "a"),
        ("if search x; then v=a; elif v=b; then true; fi", None),
        ("v=a; if search x; then v=a; fi; break $cmdpath", "a"),
    ],
)
def test_an_exit_within_what_the_boot_decides_leaves_only_its_loop_or_function(
    tmp_path, script, expected
):
    assert value(tmp_path, script) == expected


@pytest.mark.parametrize(
    "loop",
    [
        "while search x; do v=a; done",
        'for k in /boot/vm*; do if [ "$k" = /boot/vmx ]; then v=a; fi; done',
        'while search x; do if [ "$y" = 1 ]; then v=a; fi; y=1; done',
    ],
)
def test_a_loop_that_only_the_boot_decides_leaves_its_variables_unknown(loop, tmp_path):
    assert value(tmp_path, f"v=b; {loop}") is None


ENDLESS = "while true; do x=1; done"
TENS = "for {} in 0 1 2 3 4 5 6 7 8 9; do "


@pytest.mark.parametrize(
    "script, why",
    [
        (ENDLESS, "line 2: too many commands"),
        ("until false; do true; done", "line 2: too many commands"),
        (
            "".join(map(TENS.format, "abcdefg")) + "x=1; " + "done; " * 7,
            "line 2: too many commands",
        ),
        ("x=ab; " + f"x={'$x' * 10}; " * 12, "line 2: a command with more than 65,536 characters"),
        ("if true; then " * 400 + "x=1; " + "fi; " * 400, "line 2: .* nested deeper"),
        ("function f { g; }\nfunction g { f; }\nf", "line [246]: .* nested deeper"),
        ("source $prefix/grub.cfg", "line 2: .* nested deeper"),
    ],
)
def test_a_script_beyond_a_limit_is_refused_with_its_line(tmp_path, script, why):
    with pytest.raises(KlatError, match=rf"grub.cfg, {why}"):
        value(tmp_path, f"true\n{script.rstrip('; ')}\n")


@pytest.mark.parametrize("command", ["exit", "if search x; then reboot; fi", "fwsetup", "read v"])
def test_a_script_that_never_shows_its_menu_is_refused(tmp_path, command):
    with pytest.raises(KlatError, match=r"grub.cfg, line 2: \w+ stops GRUB before its menu"):
        executed(tmp_path, f"true\n{command}\nmenuentry A {{ true; }}\n")
    menu = executed(tmp_path, "fwsetup --is-supported\nmenuentry A { exit; }\n")
    assert not menu.loaded(menu.items[0])
    menu = executed(tmp_path, "menuentry A { read v; linux /a; }\n")
    assert [load.command for load in menu.loaded(menu.items[0])] == ["read", "linux"]


def test_a_function_that_an_item_defines_ends_with_the_item(tmp_path):
    (tmp_path / "x.cfg").write_text("function f { linux /other; }\n")
    items = "menuentry Z { source $prefix/x.cfg; f; }\nmenuentry A { f; linux /a; }\n"
    menu = executed(tmp_path, f"function f {{ true; }}\n{items}")
    loads = [[load.words for load in menu.loaded(item)] for item in menu.items]
    assert loads == [[("/other",)], [("/a",)]]


def test_sixty_nested_functions_are_accepted(tmp_path):
    chain = "".join(f"function f{n} {{ f{n + 1}; }}\n" for n in range(60))
    assert value(tmp_path, f"{chain}function f60 {{ v=a; }}\nf0") == "a"


def test_what_an_item_defines_is_unknown_to_the_next_item(tmp_path):
    """GRUB executes only the item that it starts."""
    first = "menuentry A {\nlinux /a\nx=1\n" + ENDLESS + "\n}\n"
    (tmp_path / "grub.cfg").write_text(first + "menuentry B {\nlinux /b$x\n}\n")
    menu = GrubMenu(tmp_path, {}, tmp_path / "root")
    menu.execute()
    with pytest.raises(KlatError, match="line 4: too many commands"):
        menu.loaded(menu.items[0])
    assert [load.words for load in menu.loaded(menu.items[1])] == [("/b$x",)]
