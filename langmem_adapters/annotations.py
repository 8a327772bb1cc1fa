"""What a function or class says of its arguments and fields, also with names that are not there, or not yet."""

from __future__ import annotations

import functools
import inspect
import sys

__all__ = ["annotations_of", "signature_of"]

if sys.version_info >= (3, 14):  # which evaluates annotations when they are asked for
    from annotationlib import Format, get_annotations

    annotations_of = functools.partial(get_annotations, format=Format.FORWARDREF)
    signature_of = functools.partial(inspect.signature, annotation_format=Format.STRING)
else:
    annotations_of, signature_of = inspect.get_annotations, inspect.signature
