"""Read annotations and signatures, even if they use names that do not exist, or do not exist yet."""

from __future__ import annotations

import functools
import inspect
import sys

if sys.version_info >= (3, 14):  # evaluates annotations only when they are asked for
    from annotationlib import Format, get_annotations

    annotations_of = functools.partial(get_annotations, format=Format.FORWARDREF)
    signature_of = functools.partial(inspect.signature, annotation_format=Format.STRING)
else:
    annotations_of, signature_of = inspect.get_annotations, inspect.signature
