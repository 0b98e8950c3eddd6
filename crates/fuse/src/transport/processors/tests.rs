use super::*;

#[test]
fn a_list_of_processors_is_read_range_by_range() {
    for (list, all) in
        [("0\n", vec![0]), ("0-3\n", vec![0, 1, 2, 3]), ("0,2-4", vec![0, 2, 3, 4]), ("0-1,5", vec![0, 1, 5])]
    {
        assert_eq!(processors(list).collect::<Vec<_>>(), all, "{list:?}");
    }
    assert_eq!(processors("\n").count(), 0);
}

#[test]
fn very_many_possible_processors_get_no_queues() {
    assert_eq!(queues_for("0-255\n"), Ok(256));
    assert_eq!(queues_for("0-256\n").unwrap_err(), "it needs threads for each of 257 possible processors");
    assert!(queues_for("none").is_err());
}

#[test]
fn a_processor_that_is_not_there_is_forbidden() {
    let online = list("online").unwrap();
    assert_eq!(first_forbidden(&online), None);
    assert_eq!(first_forbidden(&format!("{},1023", online.trim())), Some(1023));
}
