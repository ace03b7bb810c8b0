"""Whether more of a metric is better, by its name."""

from __future__ import annotations

import re

# Metrics of which more is better, by a word of their name; of all others, and of losses and errors,
# less is better.
_MORE_IS_BETTER = re.compile(
    r"(^|[^a-z])(acc|accuracy|auc|auroc|auprc|ap|map|mrr|f1|precision|recall|ndcg|hit|hits|hr|bleu"
    r"|rouge|r2|reward|return|"
    r"score|iou|miou|dice|psnr|ssim|top1|top5|throughput|samples_per_s|tokens_per_s)(?![a-z])",
    re.IGNORECASE,
)
_LOSS = re.compile(r"(loss|err|errors?)(?![a-z])", re.IGNORECASE)


def is_more_better(metric: str) -> bool:
    """Whether more of a metric is better, by its name."""
    return _MORE_IS_BETTER.search(metric) is not None and _LOSS.search(metric) is None
