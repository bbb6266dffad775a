"""Times as logs and switches print them."""

import re
from datetime import UTC, datetime

ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:?\d\d)?")
UNIX = re.compile(r"\[(\d{9,11}\.\d{1,9})\]")
"""UCX's."""
SYSLOG = re.compile(
    r"(?:(?P<year>\d{4}) )?(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2})(?: (?P<of>\d{4}))? "
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?(?: (?P<after>\d{4})\b)?"
)
LONGEST = 11
"""Digits of seconds since 1970."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOCK = re.compile(
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))? \w+ [A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) "
    r"(?P<of>\d{4})"
)
"""`show clock` of NX-OS and IOS."""


def time_of(line: str, year: int) -> int | None:
    """Return the time of a line in nanoseconds since 1970: UTC where it names no zone. None where it has none."""
    head = line[:64]
    if found := UNIX.match(head):
        return nanoseconds(found[1])
    if found := ISO.search(head):
        *parts, fraction, zone = found.groups()
        text = "{}-{}-{}T{}:{}:{}".format(*parts) + (zone or "Z").replace("Z", "+00:00")
    elif (found := CLOCK.search(head) or SYSLOG.search(head)) and found["month"] in MONTHS:
        fraction = found["part"]
        month = MONTHS.index(found["month"]) + 1
        known = found.groupdict()
        of = int(known.get("year") or known["of"] or known.get("after") or year)
        text = f"{of:04}-{month:02}-{int(found['day']):02}T{found['time']}+00:00"
    else:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return max(0, int(moment.timestamp())) * 10**9 + int((fraction or "0").ljust(9, "0"))


def nanoseconds(text: str) -> int:
    """Return a time as `date +%s.%N` prints it. ValueError for another text."""
    seconds, _, fraction = text.strip().partition(".")
    if len(seconds) > LONGEST:
        raise ValueError(f"{seconds[:20]} is no time")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9] or "0")
