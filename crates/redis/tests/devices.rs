//! A device is as the newer of its two beats says: the one with activity or the one without.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use rollcall_core::{Device, DeviceKind, Time};
use rollcall_redis::{Piece, decode_session};

/// The one device of these fields, in either order.
fn device(fields: &[(&str, &str)]) -> Device {
    let read = |fields: &mut dyn Iterator<Item = &(&str, &str)>| {
        let pieces: Vec<Piece<'_>> =
            fields.flat_map(|(field, value)| [field, value].map(|text| Piece::Bytes(text.as_bytes()))).collect();
        let mut session = decode_session(pieces.into_iter(), Piece::Nil, Piece::Nil).unwrap();
        assert_eq!(session.devices.len(), 1, "{session:?}");
        session.devices.remove(0)
    };
    let device = read(&mut fields.iter());
    assert_eq!(read(&mut fields.iter().rev()), device);
    device
}

fn summary(device: &Device) -> (DeviceKind, u64, u64, Option<u64>) {
    (device.kind, device.beat_at.0, device.expires_at.0, device.active_at.map(|Time(at)| at))
}

#[test]
fn one_beat_field_is_enough() {
    assert_eq!(summary(&device(&[("a:x", "100 50 w")])), (DeviceKind::Web, 100, 150, Some(100)));
    assert_eq!(summary(&device(&[("d:x", "100 50 w")])), (DeviceKind::Web, 100, 150, None));
}

#[test]
fn newer_beat_counts_and_activity_stays() {
    assert_eq!(
        summary(&device(&[("a:x", "100 50 w"), ("d:x", "120 10 m")])),
        (DeviceKind::Mobile, 120, 130, Some(100))
    );
    assert_eq!(summary(&device(&[("a:x", "121 10 w"), ("d:x", "120 90 m")])), (DeviceKind::Web, 121, 131, Some(121)));
}

#[test]
fn longer_life_counts_within_a_millisecond() {
    assert_eq!(
        summary(&device(&[("a:x", "100 50 w"), ("d:x", "100 60 m")])),
        (DeviceKind::Mobile, 100, 160, Some(100))
    );
    assert_eq!(summary(&device(&[("a:x", "100 50 w"), ("d:x", "100 - m")])), (DeviceKind::Web, 100, 150, Some(100)));
}

#[test]
fn departed_device_keeps_its_last_activity() {
    assert_eq!(summary(&device(&[("a:x", "100"), ("d:x", "90 5 w")])), (DeviceKind::Web, 90, 95, Some(100)));
}

#[test]
fn invalid_activity_is_refused() {
    for bad in ["", "x", "1 2", "1 2 w more", "x 2 w"] {
        let pieces = ["a:x", bad].map(|text| Piece::Bytes(text.as_bytes()));
        assert!(decode_session(pieces.into_iter(), Piece::Nil, Piece::Nil).is_err(), "{bad}");
    }
}
