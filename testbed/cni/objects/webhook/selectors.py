"""Label selectors, as Kubernetes validates them (k8s.io/apimachinery, pkg/apis/meta/v1/validation/validation.go)."""

import re

from testbed.cni.objects.kinds import Expression, Selector
from testbed.cni.objects.webhook.review import forbidden, invalid, required
from testbed.documents.text import Path

LONGEST_NAME, LONGEST_PREFIX = 63, 253
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_selector(path: Path, selector: Selector) -> None:
    """ValidateLabelSelector. Denied."""
    for key, value in selector.matchLabels.items():
        check_key((*path, "matchLabels"), key)
        check_value((*path, "matchLabels", key), value)
    for number, expression in enumerate(selector.matchExpressions):
        _check_expression((*path, "matchExpressions", number), expression)


def _check_expression(path: Path, expression: Expression) -> None:
    match expression.operator:
        case "In" | "NotIn":
            if not expression.values:
                required((*path, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if expression.values:
                forbidden((*path, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case other:
            invalid((*path, "operator"), other, "not a valid selector operator")
    check_key((*path, "key"), expression.key)
    for number, value in enumerate(expression.values):
        check_value((*path, "values", number), value)


def check_key(path: Path, key: str) -> None:
    """IsQualifiedName of k8s.io/apimachinery, pkg/util/validation. Denied."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= LONGEST_PREFIX):
        invalid(path, key, "prefix part must be a lowercase RFC 1123 subdomain, 253 characters at most")
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        wrong = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        invalid(path, key, f"{wrong}alphanumeric character, {LONGEST_NAME} characters at most")


def check_value(path: Path, value: str) -> None:
    """IsValidLabelValue. Denied."""
    if value and (not _NAME.fullmatch(value) or len(value) > LONGEST_NAME):
        wrong = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
        )
        invalid(path, value, f"{wrong}start and end with an alphanumeric character, {LONGEST_NAME} characters at most")
