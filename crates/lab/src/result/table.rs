/// Figures as text, without a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What it is of.
    pub title: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// As many cells as the head has, each.
    pub rows: Vec<Vec<String>>,
}
