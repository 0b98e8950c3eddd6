//! The hybrid disk: a flash log before a disk that sleeps.
