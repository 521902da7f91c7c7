"""YAML as users write it: read with every key once and within bounds, and what is wrong with it in plain words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from noonward.errors import ScenarioError

MOST_VALUES: Final = 1_000_000
"""Values that a text may unfold to."""
_PLAIN: Final = (
    (r"mapping values are not allowed", "no key may stand here; put a text that holds ': ' in quotes, or indent the "
     "line like the one before it"),
    (r"found character '\\t'", "a tab; indent with spaces"),
    (r"found character '(.+)' that cannot start", "a value cannot begin with '{1}'; put it in quotes"),
    (r"found unexpected end of stream", "the quotes opened {where} are not closed; close them"),
    (r"expected ',' or '\]'", "the list opened {where} needs ',' or its ']' here"),
    (r"expected ',' or '}'", "the mapping opened {where} needs ',' or its '}}' here"),
    (r"expected the node content", "a value is missing here"),
    (r"could not find expected ':'", "the key {where} has no ':' behind it; write KEY: VALUE"),
    (r"expected <block end>", "indented unlike the lines of the mapping or list {where}; align it with them"),
    (r"could not determine a constructor", "a tag ('!...') is not allowed; leave it out"),
    (r"found undefined alias '(.*)'", "'*{1}' refers to '&{1}', which is nowhere; put a text that begins with '*' "
     "in quotes"),
    (r"found another document", "a second document begins; leave out one of them and '---'"),
    (r"expected '<document start>'", "a directive ('%...') stands before it; leave that out"),
)  # fmt: skip
"""What a message of the parser means, by a pattern of it; ``where``: where that begins which it reads."""


def parse_yaml(text: str, source: str | Path) -> Any:
    """Returns what a YAML text holds.

    Args:
        text: The text.
        source: Its file, for messages.

    Raises:
        ScenarioError: It is not valid YAML, is nested too deeply, or unfolds to too many values. The message is one
            line that says where, in which line and column, and what to do.
    """
    try:
        loader = _UniqueKeys(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _require_size(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError:
        raise ScenarioError(f"{source} is not valid YAML: it is nested too deeply; use at most 100 levels") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source} is not valid YAML: {_explained(error, text)}") from error


def short(value: Any, most: int = 80) -> str:
    """Returns a value as messages show it, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _explained(error: yaml.YAMLError, text: str) -> str:
    """Returns where a text is wrong, in which way, and what to do."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return f"line {line}, column {column}: U+{error.character:04X} is no character for a text; remove it"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    here, began = error.problem_mark, error.context_mark
    where = "" if began is None else f"in line {began.line + 1}, column {began.column + 1}"
    problem = str(error.problem)
    for pattern, words in _PLAIN:
        if match := re.search(pattern, problem):
            problem = words.format(match[0], *match.groups(), where=where)
            break
    return f"line {here.line + 1}, column {here.column + 1}: {' '.join(problem.split())[:400]}"


def _require_size(node: yaml.Node, most: int = MOST_VALUES) -> None:
    """Raises YAMLError if a document unfolds to too many values: aliases may stand for one another many times."""
    size_of: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in open_:
            raise _at(node, "the value holds itself; write it out")
        if id(node) not in size_of:
            open_.add(id(node))
            below = [each for pair in node.value for each in (pair if isinstance(pair, tuple) else (pair,))]
            size_of[id(node)] = 1 + sum(map(size, below))
            open_.remove(id(node))
        return size_of[id(node)]

    if size(node) > most:
        raise yaml.YAMLError(f"its aliases unfold to more than {most:,} values; write fewer")


class _UniqueKeys(yaml.SafeLoader):
    """Loads YAML and refuses a key that stands twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Returns a value; a number or a date that Python cannot hold is an error with its place."""
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            shown = short(node.value)
            raise _at(node, f"{shown} cannot be read ({error}); correct it, or put a text in quotes") from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping whose keys are all different."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _at(key_node, f"the key {short(key)} is no text; put it in quotes or rename it")
            if key in seen:
                raise _at(key_node, f"the key {short(key)} stands twice; keep one of them")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _at(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
