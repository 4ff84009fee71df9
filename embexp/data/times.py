"""Dates and times in text, as seconds since 1970 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ISO = "a date or time such as 2024-05-31, 2024-05-31T18:00:00 or 2024-05-31 18:00:00+02:00"
"""What is expected where no format is set."""
_DATE = r"[12]\d{3}-[01]\d-[0-3]\d"
_CLOCK = r"[T ][0-2]\d:[0-5]\d(:[0-5]\d([.]\d{1,6})?)?"
_ZONE = r"(Z|[+-][01]\d:?[0-5]\d)"
_LOCAL, _ZONED = rf"^{_DATE}({_CLOCK})?$", rf"^{_DATE}{_CLOCK}{_ZONE}$"


def seconds_of(text: str, form: str | None) -> float | None:
    """The seconds of one date; None where it is none.

    Args:
        text: the date.
        form: as `datetime.strptime` takes it; None: ISO 8601. A time without a zone is in UTC.
    """
    try:
        if form is not None:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        if not text.isascii() or not (re.match(_LOCAL, text) or re.match(_ZONED, text)) or text.endswith("\n"):
            return None
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return None


def seconds(texts: pa.Array, form: str | None) -> pa.Array:
    """float64, the seconds of each date; null where there is none.

    Raises:
        ArrowInvalid: a text is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if form is not None:
        return _since_1970(pc.strptime(texts, format=form, unit="us"))
    zoned = pc.match_substring_regex(texts, _ZONED)
    local = pc.match_substring_regex(texts, _LOCAL)
    if not pc.all(pc.or_(zoned, local)).as_py():
        raise pa.ArrowInvalid(f"expected {ISO}")
    if not pc.any(zoned).as_py():
        return _since_1970(texts.cast(pa.timestamp("us")))
    with_zone = pc.if_else(zoned, texts, None).cast(pa.timestamp("us", "UTC"))
    without = pc.if_else(local, texts, None).cast(pa.timestamp("us"))
    return pc.coalesce(_since_1970(with_zone), _since_1970(without))


def _since_1970(times: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(times.cast(pa.int64()).cast(pa.float64()), 1e6)
