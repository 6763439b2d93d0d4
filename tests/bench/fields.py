"""What every record promises to hold."""

KEYS = {
    "method",
    "preset",
    "dataset",
    "aligned",
    "setting",
    "classes",
    "parties",
    "seed",
    "metrics",
    "bytes",
    "rounds",
    "seconds",
    "peak_memory_mb",
    "split_hash",
    "versions",
}
METRICS = {
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "auc",
    "seen_accuracy",
    "unseen_recall",
    "harmonic_mean",
    "per_class_recall",
    "classes_predicted",
}
