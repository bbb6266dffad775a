"""Times as logs and switches print them."""

import re
from datetime import UTC, datetime, timedelta

ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:?\d\d| [A-Z]{3,4}\b)?")
UNIX = re.compile(r"\[(\d{9,11}\.\d{1,9})\]")
"""UCX's."""
GLOG = re.compile(r"\[?[EWIF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\.(?P<part>\d{1,9})\d* ")
"""PyTorch's, in the zone of its host."""
SYSLOG = re.compile(
    r"(?:(?P<year>\d{4}) )?(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2})(?: (?P<of>\d{4}))? "
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?(?: (?P<after>\d{4})\b)?"
)
LONGEST = 11
"""Digits of seconds since 1970."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOCK = re.compile(
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))? (?P<zone>\w+) [A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) +"
    r"(?P<day>\d{1,2}) (?P<of>\d{4})"
)
"""`show clock` of NX-OS and IOS."""
ZONES = {
    "UTC": 0, "GMT": 0, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "SGT": 8, "HKT": 8, "JST": 9, "KST": 9,
    "AEST": 10, "AEDT": 11, "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
"""Hours of the names of zones; of CST, IST and BST there are several."""
OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")


def time_of(line: str, year: int, zone: int = 0) -> int | None:
    """Return the time of a line in nanoseconds since 1970, None where it has none. `zone` are the seconds that its
    clock is ahead of UTC where the line names no zone."""
    head = line[:96]
    if found := UNIX.match(head):
        return nanoseconds(found[1])
    if found := ISO.search(head):
        *parts, fraction, given = found.groups()
        text = "{}-{}-{}T{}:{}:{}".format(*parts)
        zone = zone if given is None else _given(given.strip(), zone)
    elif found := GLOG.search(head) or CLOCK.search(head) or SYSLOG.search(head):
        known = found.groupdict()
        if not found["month"].isdigit() and found["month"] not in MONTHS:
            return None
        month = int(found["month"]) if found["month"].isdigit() else MONTHS.index(found["month"]) + 1
        fraction = found["part"]
        zone = 3600 * ZONES[known["zone"]] if known.get("zone") in ZONES else zone
        of = int(known.get("year") or known.get("of") or known.get("after") or year)
        text = f"{of:04}-{month:02}-{int(found['day']):02}T{found['time']}"
    else:
        return None
    try:
        moment = datetime.fromisoformat(f"{text}+00:00").astimezone(UTC) - timedelta(seconds=zone)
    except (ValueError, OverflowError):
        return None
    return max(0, int(moment.timestamp())) * 10**9 + int((fraction or "0").ljust(9, "0"))


def _given(text: str, usual: int) -> int:
    """Return the seconds that a zone in a line is ahead of UTC; the usual ones for a word that is no zone."""
    if text == "Z":
        return 0
    return 3600 * ZONES[text] if text in ZONES else ahead(text, usual)


def ahead(text: str, usual: int = 0) -> int:
    """Return the seconds of an offset as `date +%z` prints it."""
    found = OFFSET.fullmatch(text.strip())
    if not found:
        return usual
    seconds = 3600 * int(found[2]) + 60 * int(found[3])
    return -seconds if found[1] == "-" else seconds


def nanoseconds(text: str) -> int:
    """Return a time as `date +%s.%N` prints it. ValueError for another text."""
    seconds, _, fraction = text.strip().partition(".")
    if len(seconds) > LONGEST:
        raise ValueError(f"{seconds[:20]} is no time")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9] or "0")
