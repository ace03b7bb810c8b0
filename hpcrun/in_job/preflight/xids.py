"""NVIDIA's catalogue of Xids: what the codes mean, and what each code calls for.

The codes are those of the driver in the kernel's log. Data.

https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of October 2025; codes that
it calls unused are left out. ``grade_checks.py`` judges nodes by it, and ``explain`` runs.
"""

from __future__ import annotations

PROGRAM, RESTART, CONTAINED, RESET, CONSEQUENCE, NOTE = range(6)
"""What an Xid calls for: the program is at fault; start it again; so too, the error is contained to
it; the GPU needs a reset or more; it follows another Xid; nothing by itself."""

_NVLINK5 = "an NVLink error"

XIDS: dict[int, tuple[int, str]] = {
    8: (RESTART, "the GPU stopped processing"),
    11: (PROGRAM, "an invalid stream of commands"),
    13: (PROGRAM, "an exception in a kernel (an illegal instruction or access)"),
    25: (PROGRAM, "an invalid stream of commands"),
    31: (PROGRAM, "a page fault in GPU memory (an illegal address)"),
    32: (PROGRAM, "an invalid stream of commands"),
    37: (NOTE, "an error of the driver's firmware"),
    38: (NOTE, "an error of the driver's firmware"),
    43: (PROGRAM, "the GPU stopped processing for this program"),
    44: (NOTE, "a fault during a context switch"),
    45: (CONSEQUENCE, "cleared away after an earlier error"),
    46: (RESET, "the GPU stopped processing"),
    48: (RESET, "an uncorrectable memory error (double-bit ECC)"),
    54: (RESET, "auxiliary power is not connected"),
    62: (RESET, "the GPU's micro-controller halted"),
    63: (NOTE, "a memory row was remapped"),
    64: (RESET, "a memory row could not be remapped"),
    66: (NOTE, "an illegal access by the driver"),
    67: (NOTE, "an illegal access by the driver"),
    69: (PROGRAM, "a graphics engine class error"),
    74: (RESET, _NVLINK5),
    78: (NOTE, "a virtual GPU could not start"),
    79: (RESET, "the GPU has fallen off the bus"),
    80: (PROGRAM, "corrupted data were sent to the GPU"),
    92: (NOTE, "a high rate of single-bit ECC errors"),
    93: (NOTE, "the wear limit of the InfoROM"),
    94: (CONTAINED, "a contained memory error"),
    95: (RESET, "an uncontained memory error"),
    109: (RESET, "a context switch timed out"),
    110: (RESET, "a security fault"),
    119: (RESET, "the GPU system processor (GSP) did not answer"),
    120: (RESET, "an error of the GPU system processor (GSP)"),
    121: (NOTE, "an error of the chip-to-chip link"),
    136: (RESET, "training of a link failed"),
    137: (PROGRAM, "an NVLink access without permission"),
    140: (RESET, "an unrecovered ECC error"),
    141: (NOTE, "a CUDA fast path error"),
    143: (RESET, "the GPU could not be initialized"),
    **dict.fromkeys(range(144, 151), (RESET, _NVLINK5)),
    151: (NOTE, "a key rotation error"),
    152: (NOTE, "a DLA memory error"),
    153: (NOTE, "a DLA timeout"),
    154: (NOTE, "what the GPU needs to recover has changed"),
    155: (RESET, "an NVLink error found by software"),
    156: (RESET, "a resource of the GPU was retired"),
    157: (NOTE, "a resource of the GPU could not be retired"),
    158: (RESET, "a fatal timeout"),
    159: (NOTE, "an error of the chip's interconnect"),
    160: (NOTE, "a memory channel was retired"),
    161: (NOTE, "a memory channel could not be retired"),
    167: (RESET, "a fatal timeout on PCIe"),
    168: (RESET, "an error in protected memory"),
    169: (RESET, "the GPU's micro-controller halted"),
    171: (CONSEQUENCE, "more about Xid 48"),
    172: (CONSEQUENCE, "more about Xid 48"),
    **dict.fromkeys(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        (RESTART, "an error of the copy engine"),
    ),
    **dict.fromkeys(
        (60, 68, 83, 84, 88, 89, 96, 97, 98), (RESTART, "an error of the video decoder")
    ),
    **dict.fromkeys((82, *range(99, 106)), (RESTART, "an error of the JPEG decoder")),
    **dict.fromkeys((86, 139), (RESTART, "an error of the optical flow engine")),
    142: (RESTART, "an error of the video encoder"),
}
"""Code → what it calls for, and what it means."""
WORTH_A_WORD = frozenset({63, 92, 94, 121, 154, 157, 159, 160, 161})
"""Xids without which a node is better: preflight marks it slow."""
