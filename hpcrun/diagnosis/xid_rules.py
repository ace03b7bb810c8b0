"""Rules for the Xids of NVIDIA's driver: one for each code of the catalogue that says why a program ended. Pure."""

from __future__ import annotations

from hpcrun.diagnosis.rules import Rule
from hpcrun.job.patterns import compile_pattern
from hpcrun.preflight.xids import CONSEQUENCE, CONTAINED, PROGRAM, RESET, RESTART, XIDS

_LINE = r"NVRM: Xid \((?P<gpu>[^)]*)\): {code}\b"
_CHECK = "hpcrun preflight -P {profile} --nodes {nodes}"
_CATALOGUE = "docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
# what an Xid calls for → level, what happened, what to do, a command
_WORDS = {
    PROGRAM: (
        "cause",
        "the program caused an error on the GPU at {{gpu}}: {meaning} (Xid {code})",
        "run a small case with CUDA_LAUNCH_BLOCKING=1, or with compute-sanitizer",
        "",
    ),
    RESTART: (
        "symptom",
        "the GPU at {{gpu}} reported {meaning} (Xid {code})",
        "resubmit from the last checkpoint; if it returns on this node, exclude (--exclude) and report the node",
        _CHECK,
    ),
    CONTAINED: (
        "cause",
        "a memory error of the GPU at {{gpu}}, contained to this program (Xid {code})",
        "resubmit from the last checkpoint, on another node if the error returns",
        "",
    ),
    RESET: (
        "cause",
        "the driver reported a hardware fault of the GPU at {{gpu}}: {meaning} (Xid {code})",
        "exclude the node (--exclude), resubmit from the last checkpoint, and report the Xid: the GPU needs a reset",
        _CHECK,
    ),
    CONSEQUENCE: ("consequence", "the GPU at {{gpu}}: {meaning} (Xid {code})", "", ""),
}


def xid_rules() -> list[Rule]:
    """Return a rule for each Xid that explains the end of a program; those that are only notes have none."""
    return [_rule(code, kind, meaning) for code, (kind, meaning) in XIDS.items() if kind in _WORDS]


def _rule(code: int, kind: int, meaning: str) -> Rule:
    level, cause, fix, following = _WORDS[kind]
    return Rule(
        f"xid-{code}",
        (b"NVRM: Xid",),
        compile_pattern(_LINE.replace("{code}", str(code))),
        marked=True,
        level=level,
        cause=cause.format(code=code, meaning=meaning),
        fix=fix,
        next=following,
        source=_CATALOGUE,
    )
