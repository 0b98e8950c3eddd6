use super::*;

#[test]
fn the_last_possible_processor_is_read_from_any_list() {
    for (list, last) in [("0\n", Some(0)), ("0-3\n", Some(3)), ("0,2-17", Some(17)), ("0-3,5", Some(5)), ("", None)] {
        assert_eq!(last_processor(list), last, "{list:?}");
    }
}

#[test]
fn a_gate_lets_through_what_is_over() {
    let gate = Gate::default();
    gate.set(Phase::Serving);
    assert_eq!(gate.wait(Phase::Registering), Phase::Serving);
    gate.set(Phase::Ended);
    assert_eq!(gate.wait(Phase::Serving), Phase::Ended);
}
