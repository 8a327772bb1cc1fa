"""The namespaces of a store for LangGraph, as a tree: those below a prefix are found without reading any others.

Each node is a namespace of the store; its values are its children's labels. A value is a token, new each time that
the child is added: an empty child is removed only if it was not added again meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from uuid import uuid4

from langmem_adapters.errors import Conflict
from langmem_adapters.expiry import EMPTY_TTL_SECONDS
from langmem_adapters.flow import Flow, gather, run, step
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.protocols import Store
from langmem_adapters.warn_once import warn_of_damage

_ADDITION_KEY = ""  # the key of the latest addition's token
_MAX_CACHED_NODES = 128  # nodes of which some children are cached
_SAMPLE_SIZE = 4  # children cached per node, chosen at random, so that they are not removed one after the other


class NamespaceTree:
    """The tree of namespaces. Blocking; meant for a flow's steps. ``root`` is where its nodes are kept."""

    def __init__(self, store: Store, root: Namespace, *, new_id: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._store = store
        self._root = root
        self._new_id = new_id
        self._sampled_keys: dict[Namespace, list[str]] = {}  # by node: some children that may still exist

    def add(self, namespace: Namespace) -> None:
        """Add a namespace, from the leaf up, so that a branch that was found empty is seen to change."""
        run(gather(self._add_child(node, key) for node, key in self._path_to_root(namespace)))

    def _add_child(self, node: Namespace, key: str) -> Flow[None]:
        token = self._new_id().encode()
        yield from step(self._store.write, node, put={key: token, _ADDITION_KEY: token})

    def has(self, namespace: Namespace) -> bool:
        """Whether a namespace can be reached from the root."""
        path = self._path_to_root(namespace)
        return all(run(gather(step(self._store.get, node, [key]) for node, key in path)))

    def _path_to_root(self, namespace: Namespace) -> Iterator[tuple[Namespace, str]]:
        """The nodes from a namespace up to the root, each with the key of its child on the way."""
        kind = "items"
        for depth in range(len(namespace) - 1, -1, -1):
            yield (*self._root, *namespace[:depth]), _child_key(kind, namespace[depth])
            kind = "below"

    def below(self, prefix: Namespace) -> Flow[list[Namespace]]:
        """The namespaces that begin with the prefix and are longer."""
        namespaces, nodes = list[Namespace](), [prefix]  # nodes of one depth
        while nodes:
            children = zip(nodes, (yield from gather(map(self._children, nodes))), strict=True)
            branches = [((*node, label), kind) for node, own in children for kind, label in own]
            namespaces += [namespace for namespace, kind in branches if kind == "items"]
            nodes = [namespace for namespace, kind in branches if kind == "below"]
        return namespaces

    def _children(self, node: Namespace) -> Flow[list[tuple[str, str]]]:
        values = yield from step(self._store.get, (*self._root, *node))
        return [child for key in values if key != _ADDITION_KEY and (child := _parse_child(key)) is not None]

    def remove(self, namespace: Namespace, *, only_if: Callable[[], bool]) -> None:
        """Remove a namespace, and the branches that led only to it, unless it is added again at this moment."""
        kinds = ("items",)
        with suppress(Conflict):
            while namespace and self._remove_child(namespace, kinds, only_if):
                namespace, kinds = namespace[:-1], ("below",)
                only_if = partial(self._is_empty, namespace)

    def prune(self, branch: Namespace, *, is_own: Callable[[Namespace], bool]) -> None:
        """Remove a branch with everything on it, and nodes left empty; ``is_own`` nodes are cleared at once."""

        def always() -> bool:
            return True

        kinds: tuple[str, ...] = ("items", "below")
        only_if: Callable[[], bool] = always
        while branch:
            try:
                self._remove_child(branch, kinds, only_if)
            except Conflict:
                continue  # another writer was first
            branch, kinds = branch[:-1], ("below",)
            if not self._is_empty(branch):
                return
            if is_own(branch):
                self._store.clear((*self._root, *branch))
            only_if = partial(self._is_empty, branch)

    def _is_empty(self, node: Namespace) -> bool:
        return not run(self._children(node))

    def _remove_child(self, branch: Namespace, kinds: Sequence[str], only_if: Callable[[], bool]) -> bool:
        """Remove a label's children of these kinds from a node; returns whether the node is empty then."""
        node = (*self._root, *branch[:-1])
        keys = [_child_key(kind, branch[-1]) for kind in kinds]
        guard: dict[str, bytes | None] = {_ADDITION_KEY: None, **self._store.get(node, [*keys, _ADDITION_KEY])}
        if guard.keys().isdisjoint(keys) or not only_if():
            return False
        is_emptied = not self._has_other_children(node, guard.keys())
        deleted_keys = [*guard] if is_emptied else keys
        self._store.write(node, delete=deleted_keys, guard=guard, ttl=EMPTY_TTL_SECONDS if is_emptied else None)
        return is_emptied

    def _has_other_children(self, node: Namespace, excluded: AbstractSet[str]) -> bool:
        """Whether a node has other children: checks some that it had before, and else reads them all.

        Otherwise, removing thousands of children would read all the remaining ones each time.
        """
        sampled = [key for key in self._sampled_keys.get(node, ()) if key not in excluded]
        if sampled and self._store.get(node, sampled):
            return True
        other_keys = list(self._store.get(node).keys() - excluded)
        if len(self._sampled_keys) >= _MAX_CACHED_NODES:
            self._sampled_keys.clear()
        self._sampled_keys[node] = random.sample(other_keys, min(_SAMPLE_SIZE, len(other_keys)))
        return bool(other_keys)


def _child_key(kind: str, label: str) -> str:
    """A child may have "items", or a node of its own and so what is "below", or both: each is a separate value."""
    return f"{kind} {encode_namespace((label,))}"


def _parse_child(key: str) -> tuple[str, str] | None:
    """The kind and the label of a key; None, with a warning, if that is damaged: the others are found all the same."""
    kind, _, name = key.partition(" ")
    labels = decode_namespace(name)
    if len(labels) != 1:
        warn_of_damage(key, "the name of a namespace of items is damaged: it is not listed until an item is put there")
        return None
    return ("items" if kind == "items" else "below"), labels[0]
