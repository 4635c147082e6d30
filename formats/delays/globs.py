"""Names in plans: `*` stands for any run of characters, `?` for one, a backslash takes that meaning away."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Glob", "GlobError"]

_ANY, _ONE = "any", "one"  # longer than one character: no literal
_BARE = re.compile(r"[A-Za-z0-9_.:/@%*?~=(-][A-Za-z0-9_.:/@%*?~=()\[\]{},;<>!$&^|+#-]*")
_CODE = re.compile(r"u\{([0-9a-fA-F]{1,6})\}")


class GlobError(ValueError):
    """A name that is written wrongly; the message says how."""


@dataclass(frozen=True)
class Glob:
    """A name or a pattern of names.

    Attributes
    ----------
    tokens : tuple of str
        One character each, or a word for a wildcard.
    """

    tokens: tuple[str, ...]

    @staticmethod
    def of(text: str) -> Glob:
        r"""Return the pattern that `text` writes: ``*``, ``?``, ``\"``, ``\\``, ``\*``, ``\?``, ``\u{HEX}``.

        Raises
        ------
        GlobError
            Anything else follows a backslash, or nothing.
        """
        tokens: list[str] = []
        at = 0
        while at < len(text):
            c = text[at]
            at += 1
            if c == "*":
                if not tokens or tokens[-1] is not _ANY:
                    tokens.append(_ANY)
            elif c == "?":
                tokens.append(_ONE)
            elif c != "\\":
                tokens.append(c)
            elif at < len(text) and text[at] in '"\\*?':
                tokens.append(text[at])
                at += 1
            else:
                code = _CODE.match(text, at)
                number = int(code[1], 16) if code else -1
                if code is None or number > 0x10FFFF or 0xD800 <= number < 0xE000:
                    raise GlobError('a backslash before none of \\ " * ? u{HEX}')
                tokens.append(chr(number))
                at = code.end()
        return Glob(tuple(tokens))

    @staticmethod
    def exactly(name: str) -> Glob:
        """Return the pattern that matches this name alone."""
        return Glob(tuple(name))

    @property
    def literal(self) -> str | None:
        """The one name it matches; None where it has wildcards."""
        return None if _ANY in self.tokens or _ONE in self.tokens else "".join(self.tokens)

    def matches(self, name: str) -> bool:
        """Whether a name matches as a whole; at most ``len(tokens) * len(name)`` steps."""
        tokens = self.tokens
        at = token = 0
        star = restart = -1
        while at < len(name):
            if token < len(tokens) and (tokens[token] == name[at] or tokens[token] is _ONE):
                at += 1
                token += 1
            elif token < len(tokens) and tokens[token] is _ANY:
                star, restart = token, at
                token += 1
            elif star >= 0:
                restart += 1
                at, token = restart, star + 1
            else:
                return False
        while token < len(tokens) and tokens[token] is _ANY:
            token += 1
        return token == len(tokens)

    def text(self) -> str:
        """Return how a plan writes it: as a bare word where that can be, else in quotes."""
        plain = "".join(map(_written, self.tokens))
        return plain if _BARE.fullmatch(plain) else f'"{plain}"'


def is_bare(word: str) -> bool:
    """Whether a word is a name that needs no quotes."""
    return _BARE.fullmatch(word) is not None


def _written(token: str) -> str:
    if token is _ANY:
        return "*"
    if token is _ONE:
        return "?"
    if token in '"\\*?':
        return "\\" + token
    return token if token.isprintable() else f"\\u{{{ord(token):x}}}"
