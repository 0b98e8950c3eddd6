//! What several papers compute of their runs.

/// From `base` to `value`, in percent; zero where there is no base.
pub(crate) fn change(base: f64, value: f64) -> f64 {
    if base > 0.0 { 100.0 * (value / base - 1.0) } else { 0.0 }
}

/// Their mean; zero of none.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
