"""Made code: module bundles, message tables and style sheets like those of a large web application.

A page of 1.3 MB is mostly code that nobody may copy here, so it is made: valid, shaped like the
output of a bundler and minifier, and about as compressible. The browser parses all of it and
runs the part the page asks for.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from _make.vocabulary import ACTIONS, ADJECTIVES, EVENTS, SENTENCES, TAGS, TERMS, VERBS, listed

_T = TypeVar("_T")


class _Dice:
    """Random choices that stay the same: of all of `random`, only `random()` is promised never to change."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def below(self, end: int) -> int:
        """Whole number from 0 to `end` - 1."""
        return int(self._random() * end)

    def between(self, first: int, last: int) -> int:
        """Whole number from `first` to `last`."""
        return first + self.below(last - first + 1)

    def pick(self, choices: Sequence[_T]) -> _T:
        """One of `choices`."""
        return choices[self.below(len(choices))]

    def word(self) -> str:
        """One word; some are much more frequent than others, as in code."""
        return TERMS[int(self._random() * self._random() * len(TERMS))]

    def camel(self, terms: int) -> str:
        """Words run together, each but the first with a capital."""
        first, *rest = (self.word() for _ in range(terms))
        return first + "".join(word.capitalize() for word in rest)

    def name(self) -> str:
        """Name of a function: a verb and what it is done to."""
        name = self.pick(VERBS) + "".join(self.word().capitalize() for _ in range(self.between(1, 3)))
        return name + str(self.below(100)) if self.below(6) == 0 else name

    def digits(self, count: int) -> str:
        """Hex digits, like the identifiers of queries and revisions."""
        return "".join(self.pick("0123456789abcdef") for _ in range(count))

    def sentence(self) -> str:
        """One message a user interface might show."""
        verb, a = self.pick(ACTIONS), self.word()
        return self.pick(SENTENCES).format(
            verb=verb, Verb=verb.capitalize(), a=a, A=a.capitalize(), b=self.word(), c=self.word(), d=self.word(),
            adj=self.pick(ADJECTIVES), count="{count}", name="{name}",
        )  # fmt: skip


# Each of the following makes one declaration named `n` and a call of it that is safe to run, or "".


def _fold(d: _Dice, n: str) -> tuple[str, str]:
    text = (
        f"function {n}(a,b){{for(var c={d.below(1 << 30)},e=0;e<a.length;e++)"
        f"c=Math.imul(c^a.charCodeAt(e),{d.below(1 << 24) | 1})+b>>>0;return c%{d.between(97, 9999)}}}"
    )
    return text, f'{n}("{d.camel(3)}",{d.below(64)})'


def _lookup(d: _Dice, n: str) -> tuple[str, str]:
    entries = ",".join(f'{d.camel(2)}:"{d.pick((d.word(), d.digits(8)))}"' for _ in range(d.between(4, 14)))
    text = (
        f"var {n}$map={{{entries}}};"
        f"function {n}(a){{return Object.prototype.hasOwnProperty.call({n}$map,a)?{n}$map[a]:null}}"
    )
    return text, f'({n}("{d.camel(2)}")||"").length'


def _switch(d: _Dice, n: str) -> tuple[str, str]:
    cases = "".join(
        f'case"{d.camel(2)}":return {d.pick((str(d.below(4096)), "!0", "!1"))};' for _ in range(d.between(3, 9))
    )
    return f"function {n}(a){{switch(a){{{cases}default:return {d.below(16)}}}}}", f'({n}("{d.camel(2)}")|0)'


def _validator(d: _Dice, n: str) -> tuple[str, str]:
    low, high = d.between(1, 6), d.between(20, 120)
    text = (
        f'function {n}(a){{if(typeof a!=="string"||a.length<{low}||a.length>{high})return!1;'
        f'var b=a.trim().toLowerCase();return b.indexOf("{d.word()}")<0&&'
        f"/^[a-z0-9_.]{{{low},{high}}}$/i.test(b)}}"
    )
    return text, f'({n}("{d.word()}.{d.word()}")|0)'


def _reducer(d: _Dice, n: str) -> tuple[str, str]:
    cases = "".join(
        f'case"{d.word().upper()}_{d.pick(EVENTS)}":return Object.assign({{}},a,'
        f"{{{d.camel(2)}:b.{d.word()},is{d.word().capitalize()}:!{d.below(2)}}});"
        for _ in range(d.between(2, 6))
    )
    first = d.camel(2)
    text = f"function {n}(a,b){{if(a===void 0)a={{{first}:{d.below(9)}}};switch(b.type){{{cases}default:return a}}}}"
    return text, f'{n}(void 0,{{type:""}}).{first}'


def _component(d: _Dice, n: str) -> tuple[str, str]:
    tag, inner = d.pick(TAGS), d.pick(TAGS)
    classes = " ".join("x" + d.digits(6) for _ in range(d.between(2, 6)))
    text = (
        f"function {n}$view(a){{var b=a.{d.word()},c=a.{d.camel(2)},f=a.children;"
        f'return r("ui/element").create("{tag}",{{className:"{classes}",role:"{d.word()}","aria-label":b,'
        f'"data-testid":"{d.word()}-{d.word()}-{tag}"}},c!=null&&r("ui/element").create("{inner}",'
        f'{{className:"x{d.digits(6)} x{d.digits(6)}",id:c}},c.{d.word()}),f)}}'
        f'{n}$view.displayName="{n}";'
    )
    return text, ""


def _class(d: _Dice, n: str) -> tuple[str, str]:
    name, field, step = n[0].upper() + n[1:], "_" + d.word(), d.between(2, 99)
    methods = "".join(
        f"{method}(a){{var b=this.{field}.length;if(b===0)return {d.below(9)};"
        f"this.{field}.push((a+b*{d.between(2, 99)})%{d.between(100, 999)});return this.{field}[b-1]|0}}"
        for method in {d.name(): None for _ in range(d.between(1, 4))}
    )
    text = (
        f'class {name}{{constructor(a){{this.{field}=a||[];this.{d.camel(2)}Id="{d.digits(10)}"}}'
        f"next(){{this.{field}.push(this.{field}.length*{step});return this.{field}.length}}{methods}}}"
    )
    return text, f"new {name}([{d.below(9)},{d.below(99)}]).next()"


def _pipeline(d: _Dice, n: str) -> tuple[str, str]:
    numbers = ",".join(str(d.below(10**5)) for _ in range(d.between(6, 24)))
    text = (
        f"var {n}$values=[{numbers}];function {n}(a){{return {n}$values"
        f".filter(function(b){{return b%{d.between(2, 7)}!==a}})"
        f".map(function(b){{return b*{d.between(2, 31)}+a}})"
        f".reduce(function(b,c){{return(b+c)%{d.between(1000, 65535)}}},0)}}"
    )
    return text, f"{n}({d.below(5)})"


def _icon(d: _Dice, n: str) -> tuple[str, str]:
    steps = "".join(
        f"{d.pick('clcsq')}{d.below(240) / 10} {d.below(240) / 10} {d.below(99) / 10}-{d.below(99) / 10}"
        for _ in range(d.between(6, 26))
    )
    return f'var {n}$icon={{viewBox:"0 0 24 24",path:"M{d.below(24)} {d.below(24)}{steps}z"}};', f"{n}$icon.path.length"


def _query(d: _Dice, n: str) -> tuple[str, str]:
    variables = ",".join(
        f'{{defaultValue:null,kind:"LocalArgument",name:"{d.camel(2)}"}}' for _ in range(d.between(1, 5))
    )
    fields = ",".join(
        f'{{alias:null,args:null,kind:"ScalarField",name:"{d.word()}_{d.word()}",storageKey:null}}'
        for _ in range(d.between(2, 9))
    )
    text = (
        f'var {n}$query={{fragment:{{argumentDefinitions:[{variables}],kind:"Fragment",name:"{n}$query",'
        f'selections:[{fields}],type:"Query"}},params:{{id:"{d.between(10**8, 10**9)}{d.between(10**7, 10**8)}",'
        f'metadata:{{}},name:"{n}$query",operationKind:"query",text:null}}}};'
    )
    return text, f"{n}$query.params.id.length"


def _request(d: _Dice, n: str) -> tuple[str, str]:
    text = (
        f"function {n}(a,b,c){{var f=b.get{d.word().capitalize()}();if(f==null)"
        f'return Promise.reject(Error("{d.word()} {d.word()}: {d.sentence()}"));'
        f'return a.post("/api/v1/{d.word()}s/"+encodeURIComponent(f.id)+"/{d.word()}_{d.word()}/",'
        f"{{{d.word()}_id:f.id,{d.word()}_{d.word()}:c?{d.below(9)}:{d.below(99)}}})"
        f'.then(function(g){{if(g.status!=="ok")throw Error("{d.sentence()}");'
        f"b.{d.name()}(g.{d.word()},g.{d.camel(2)});return g}})}}"
    )
    return text, ""


def _duration(d: _Dice, n: str) -> tuple[str, str]:
    text = (
        f"function {n}(a){{var b=Math.floor(a/{d.pick((60, 3600, 86400))}),c=a%{d.pick((60, 3600))};"
        f'if(b<=0)return c+" {d.word()}s";return b+(b===1?" {d.word()}":" {d.word()}s")+(c>{d.below(30)}?" "+c:"")}}'
    )
    return text, f"{n}({d.below(10**5)}).length"


_DECLARATIONS: tuple[Callable[[_Dice, str], tuple[str, str]], ...] = (
    _fold, _lookup, _switch, _validator, _reducer, _component, _component, _class, _pipeline, _icon, _query,
    _request, _request, _duration,
)  # fmt: skip
_CALLED_ROOT_SHARE = 0.12


def modules(*, name: str, count: int, seed: int) -> bytes:
    """Bundle of modules for the loader `d(name, factory)` of the page.

    Module `NAME/main` requires one in eight of the others, and these what they depend on; its
    export `check` is the sum of what they computed. The remaining modules are parsed only.

    Parameters
    ----------
    name
        Prefix of the modules' names.
    count
        Modules besides `main`.
    seed
        Start of the random choices.
    """
    dice = _Dice(f"modules {name} {seed}")
    names: list[str] = []
    parts = ['"use strict";\n']
    roots: list[str] = []
    taken: set[str] = set()
    for number in range(count):
        own = f"{name}/{dice.camel(dice.between(2, 4))}"
        while own in taken:
            own += str(number)
        taken.add(own)
        needed = [dice.pick(names) for _ in range(min(number, dice.below(4)))]
        parts.append(_module(dice, own, needed))
        names.append(own)
        if dice.below(1000) < _CALLED_ROOT_SHARE * 1000:
            roots.append(own)
    parts.append(_define(f"{name}/main", [], _sum_of_checks(roots)))
    return "".join(parts).encode()


def _define(name: str, declarations: list[str], check: str) -> str:
    return f"d({json.dumps(name)},function(r,e){{{''.join(declarations)}e.check={check}}});\n"


def _sum_of_checks(names: Sequence[str]) -> str:
    checks = "+".join(f"r({json.dumps(name)}).check" for name in dict.fromkeys(names))
    return f"({checks})%1000003" if checks else "0"


def _module(dice: _Dice, name: str, needed: Sequence[str]) -> str:
    declarations: list[str] = []
    calls: list[str] = []
    used: set[str] = set()
    for _ in range(dice.between(3, 9)):
        function = dice.name()
        if function in used:
            continue
        used.add(function)
        text, call = dice.pick(_DECLARATIONS)(dice, function)
        declarations.append(text)
        if call:
            calls.append(call)
    return _define(name, declarations, "+".join((_sum_of_checks(needed), *calls)))


def messages(*, name: str, count: int, seed: int) -> bytes:
    """Table of user-interface messages: one module `NAME` that exports `text`, messages by key.

    Parameters
    ----------
    name
        Name of the module.
    count
        Messages.
    seed
        Start of the random choices.
    """
    dice = _Dice(f"messages {name} {seed}")
    table = {dice.digits(7): dice.sentence() for _ in range(count)}
    text = json.dumps(table, separators=(",", ":"))
    return f'"use strict";\nd({json.dumps(name)},function(r,e){{e.text={text}}});\n'.encode()


_LENGTHS = listed("""
0 1px 2px 4px 6px 8px 10px 12px 16px 20px 24px 28px 32px 40px 48px 56px 64px 5% 10% 25% 33.333% 50% 66.667% 75% 100%
auto
""")
_KEYWORDS = {
    "display": ("flex", "block", "inline", "inline-block", "inline-flex", "grid", "none", "contents"),
    "flex-direction": ("row", "column", "row-reverse", "column-reverse"),
    "align-items": ("center", "stretch", "flex-start", "flex-end", "baseline"),
    "justify-content": ("center", "space-between", "space-around", "flex-start", "flex-end"),
    "position": ("relative", "absolute", "fixed", "sticky", "static"),
    "overflow": ("hidden", "auto", "scroll", "visible"),
    "text-align": ("center", "left", "right", "start", "end"),
    "font-weight": ("300", "400", "500", "600", "700"),
    "cursor": ("pointer", "default", "not-allowed", "grab", "text"),
    "white-space": ("nowrap", "pre-wrap", "pre-line", "normal"),
    "box-sizing": ("border-box", "content-box"),
    "list-style": ("none",),
}
_SIZED = listed("""
margin-top margin-right margin-bottom margin-left padding-top padding-right padding-bottom padding-left top right bottom
left width height min-width min-height max-width max-height gap flex-basis font-size line-height border-radius
border-top-left-radius border-bottom-right-radius letter-spacing text-indent
""")
_COLOURED = listed("""
color background-color border-top-color border-bottom-color fill stroke outline-color caret-color
""")
_MEDIA = ("", "", "(min-width:736px)", "(min-width:1024px)", "(max-width:735px)")
_STATES = ("", "", "", ":hover", ":focus", ":active", ":disabled", "::before", "::after")


def styles(*, count: int, seed: int) -> bytes:
    """Atomic style sheet: one rule per declaration, its class named by a hash of the declaration.

    The keyword declarations (`display:flex` and the like) always come first, so a page can rely on them.

    Parameters
    ----------
    count
        Rules.
    seed
        Start of the random choices.
    """
    dice = _Dice(f"styles {seed}")
    rules = {atom(f"{key}:{value}"): f"{key}:{value}" for key, values in _KEYWORDS.items() for value in values}
    lines = [f".{name}{{{declaration}}}" for name, declaration in rules.items()]
    while len(rules) < count:
        property_name = dice.pick((*_SIZED, *_COLOURED, "transform", "box-shadow", "transition"))
        if property_name in _COLOURED:
            value = dice.pick(
                (f"#{dice.digits(6)}", f"rgba({dice.below(256)},{dice.below(256)},{dice.below(256)},.{dice.below(10)})")
            )
        elif property_name == "transform":
            value = f"translate({dice.between(-50, 50)}%,{dice.between(-50, 50)}%) scale({dice.below(20) / 10})"
        elif property_name == "box-shadow":
            value = f"0 {dice.below(9)}px {dice.below(40)}px rgba(0,0,0,.{dice.below(99):02})"
        elif property_name == "transition":
            curve = f"cubic-bezier(.{dice.below(10)},0,.{dice.below(10)},1)"
            value = f"{dice.pick(_SIZED)} {dice.between(5, 90) * 10}ms {curve}"
        else:
            value = dice.pick((*_LENGTHS, f"{dice.below(400)}px", f"{dice.below(100) / 8}rem"))
        media, state = dice.pick(_MEDIA), dice.pick(_STATES)
        declaration = f"{property_name}:{value}"
        name = atom(media + state + declaration)
        if name in rules:
            continue
        rules[name] = declaration
        rule = f".{name}{state}{{{declaration}}}"
        lines.append(f"@media {media}{{{rule}}}" if media else rule)
    return "".join(lines).encode()


def atom(declaration: str) -> str:
    """Class name of an atomic rule."""
    number, digits = zlib.crc32(declaration.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 36)
        digits += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
    return "x" + digits
