//! The journal of scans that are started from pages, and their schedules.

use super::*;
use crate::inventory::InventoryTime;

#[test]
fn what_is_due_is_started_by_one_page_alone_and_never_taken_without_being_noted() {
    on_both(|place| {
        place.see(EventSource::Scan, &[]);
        let [one, other] = [(); 2].map(|()| InventoryDatabase::open_to_write(&place.place).unwrap());
        let id = one.schedule("{}", "every 6h", "ann", InventoryTime::from_millis(5)).unwrap();
        let [mine, theirs] = [&one, &other].map(|page| page.schedules().unwrap().remove(0));
        let next = InventoryTime::from_millis(9);
        let number = one.begin_due(&mine, next, "one").unwrap().expect("nobody was quicker");
        assert_eq!(other.begin_due(&theirs, next, "other").unwrap(), None);
        assert!(!other.claim_due(&theirs, next, 1).unwrap());
        let noted = one.orders(9).unwrap();
        assert_eq!(noted.iter().map(|it| (it.id, it.schedule)).collect::<Vec<_>>(), [(number, Some(id))]);
        assert_eq!(place.ask("SELECT due, missed FROM schedules"), "9|0");
        assert!(one.is_running(id).unwrap());

        // An order that cannot be noted leaves what is due to a later look.
        let again = one.schedules().unwrap().remove(0);
        place.ask("ALTER TABLE orders RENAME COLUMN page TO away");
        other.begin_due(&again, InventoryTime::from_millis(20), "other").unwrap_err();
        assert_eq!(place.ask("SELECT due FROM schedules"), "9");
    });
}

#[test]
fn no_schedule_has_the_number_of_one_whose_scans_are_told_of() {
    on_both(|place| {
        place.see(EventSource::Scan, &[]);
        let database = InventoryDatabase::open_to_write(&place.place).unwrap();
        let make = || database.schedule("{}", "every 6h", "ann", InventoryTime::from_millis(5)).unwrap();
        assert_eq!([make(), make()], [1, 2]);
        let last = database.schedules().unwrap().remove(1);
        database.begin_due(&last, InventoryTime::from_millis(9), "one").unwrap().expect("it is due");
        assert!(database.unschedule(2).unwrap());
        assert_eq!(make(), 3);
        assert!(!database.is_running(3).unwrap());
    });
}

#[test]
fn a_connection_to_a_file_that_was_replaced_is_none_to_write_by() {
    let place = Place::new();
    place.see(EventSource::Scan, &[]);
    let database = InventoryDatabase::open_to_write(&place.place).unwrap();
    assert!(database.is_current());
    let file = place.place.file().unwrap();
    let other = file.with_extension("other");
    std::fs::copy(file, &other).unwrap();
    std::fs::rename(&other, file).unwrap();
    assert!(!database.is_current());
    assert!(InventoryDatabase::open_to_write(&place.place).unwrap().is_current());
}

#[test]
fn a_scan_is_closed_that_nobody_tells_of_and_taken_back_by_a_page_that_was_slow() {
    on_both(|place| {
        place.see(EventSource::Scan, &[]);
        let database = InventoryDatabase::open_to_write(&place.place).unwrap();
        let id = database.begin_order("{}", ("ann", "one")).unwrap();
        assert_eq!(database.runs_at(id).unwrap().as_deref(), Some("one"));
        assert_eq!(database.beats().unwrap(), [(id, 0)]);
        database.beat(id).unwrap();
        assert!(!database.end_if_silent((id, 0)).unwrap(), "it was told of meanwhile");
        assert!(database.end_if_silent((id, 1)).unwrap());
        assert!(database.beats().unwrap().is_empty());
        assert_eq!(database.orders(1).unwrap()[0].said, "its page sends no heartbeats");
        database.beat(id).unwrap();
        assert_eq!(database.beats().unwrap(), [(id, 2)]);
        assert_eq!(
            (database.orders(1).unwrap()[0].ended, database.orders(1).unwrap()[0].said.as_str()),
            (None, "")
        );
        database.end_order(id, Some(0), "done").unwrap();
        assert_eq!(database.runs_at(id).unwrap(), None);
        assert!(database.beats().unwrap().is_empty());
    });
}
