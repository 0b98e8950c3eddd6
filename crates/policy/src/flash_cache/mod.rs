//! The flash cache of a hybrid disk (NVCache): what is in its log, when to flush it, and in which order.
