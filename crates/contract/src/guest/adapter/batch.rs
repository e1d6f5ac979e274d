//! Batches in which an invalid item fails alone, at its index.

use rollcall_core::{DeviceId, Error, Id, Ids, Invalid, Unfit, UserId};
use rollcall_functions::capabilities::{DeviceEvent, MAX_BATCH, Touch, Touches};

use super::super::convert::each;
use super::super::wit::session_types as wit;

/// Fails a call that is above its bound.
pub(super) fn bounded(count: usize, most: usize) -> Result<(), Error> {
    if count > most { Err(Error::TooMany(u32::try_from(most).unwrap_or(u32::MAX))) } else { Ok(()) }
}

/// Invalid items, by rising index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refused(Vec<(usize, Invalid)>);

impl Refused {
    /// The answers to the valid items, with these inserted at their indexes.
    pub(super) fn among<T>(self, mut answers: Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
        for (index, invalid) in self.0 {
            answers.insert(index.min(answers.len()), Err(invalid.into()));
        }
        answers
    }
}

/// Converts the valid items and sets the others apart.
pub(super) fn fit<W, T>(
    items: impl IntoIterator<Item = W>,
    convert: impl Fn(W) -> Result<T, Invalid>,
) -> (Vec<T>, Refused) {
    let items = items.into_iter();
    let (mut good, mut refused) = (Vec::with_capacity(items.size_hint().0), Refused::default());
    for (index, item) in items.enumerate() {
        match convert(item) {
            Ok(item) => good.push(item),
            Err(invalid) => refused.0.push((index, invalid)),
        }
    }
    (good, refused)
}

/// The valid touches, and those that are not. An error: the columns do not fit together.
pub(super) fn touches(touches: wit::Touches) -> Result<(Touches, Refused), Error> {
    bounded(touches.events.len(), MAX_BATCH)?;
    let events: Vec<DeviceEvent> = each(touches.events);
    let users = Ids::parse(touches.users.text, touches.users.lengths);
    let devices = Ids::parse(touches.devices.text, touches.devices.lengths);
    match (users, devices) {
        (Ok(users), Ok(devices)) if users.len() == events.len() && devices.len() == events.len() => {
            Ok((Touches { users, devices, events }, Refused::default()))
        }
        (users, devices) => one_by_one(&texts(&users)?, &texts(&devices)?, &events),
    }
}

/// The slow path: at least one id is invalid.
fn one_by_one(users: &[&str], devices: &[&str], events: &[DeviceEvent]) -> Result<(Touches, Refused), Error> {
    if users.len() != events.len() || devices.len() != events.len() {
        return Err(Invalid::new("touches", "has columns of different lengths").into());
    }
    let touch = |((user, device), event): ((&&str, &&str), &DeviceEvent)| {
        Ok(Touch { user: UserId::parse(*user)?, device: DeviceId::parse(*device)?, event: *event })
    };
    let (good, refused) = fit(users.iter().zip(devices).zip(events), touch);
    Ok((good.into_iter().collect(), refused))
}

fn texts<I: Id>(ids: &Result<Ids<I>, Unfit>) -> Result<Vec<&str>, Error> {
    match ids {
        Ok(ids) => Ok(ids.iter().collect()),
        Err(unfit) => Ok(unfit.pieces()?.collect()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use rollcall_core::heartbeat::Found;
    use rollcall_core::{Stance, State, Time};
    use rollcall_functions::capabilities::Touched;

    use super::super::super::wit::types;
    use super::*;

    #[test]
    fn invalid_items_fail_alone_at_their_index() {
        let asked = ["", "bob", "a\nb", "eve", ""].map(str::to_owned);
        let (good, refused) = fit(asked, UserId::parse);
        assert_eq!(good.iter().map(UserId::as_str).collect::<Vec<_>>(), ["bob", "eve"]);
        let invalid = |rule: &str| Err(Error::from(Invalid::new("user", rule)));
        let (empty, control) = (invalid("is empty"), invalid("contains a control character"));
        assert_eq!(
            refused.among(vec![Ok(1), Err(Error::Unavailable(5))]),
            [empty.clone(), Ok(1), control, Err(Error::Unavailable(5)), empty]
        );
    }

    #[test]
    fn batch_above_its_bound_fails() {
        assert_eq!(bounded(1025, 1024), Err(Error::TooMany(1024)));
        assert_eq!(bounded(1024, 1024), Ok(()));
    }

    fn packed(ids: &[&str]) -> types::Ids {
        types::Ids { text: ids.concat(), lengths: ids.iter().map(|id| id.len() as u8).collect() }
    }

    fn asked(users: &[&str], devices: &[&str], events: usize) -> wit::Touches {
        wit::Touches { users: packed(users), devices: packed(devices), events: vec![wit::DeviceEvent::Logout; events] }
    }

    #[test]
    fn invalid_touches_fail_alone_at_their_index() {
        let asked = asked(&["", "bob", "eve", "é"], &["web", "web", "a\nb", "名"], 4);
        let (good, refused) = super::touches(asked).unwrap();
        let tried: Vec<_> = good.iter().collect();
        assert_eq!(tried, [("bob", "web", DeviceEvent::Logout), ("é", "名", DeviceEvent::Logout)]);
        let found = Found { state: State::Away, version: 7, stance: Stance::Busy, stance_until: Some(Time(9)) };
        let out = wit::Touched::from(Touched {
            now: Time(5),
            found: refused.among(vec![Ok(found), Err(Error::Unavailable(1))]),
        });
        assert_eq!((out.now, out.versions), (5, vec![0, 7, 0, 0]));
        assert_eq!(out.failures.iter().map(|failure| failure.index).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(out.stance_ends.iter().map(|end| (end.index, end.at)).collect::<Vec<_>>(), [(1, 9)]);
        assert_eq!(out.states.len(), 4);
    }

    #[test]
    fn valid_touches_are_taken_as_they_are() {
        let (good, refused) = super::touches(asked(&["bob", "eve"], &["a", "b"], 2)).unwrap();
        assert_eq!((good.users.len(), good.devices.len(), good.events.len()), (2, 2, 2));
        assert_eq!(refused, Refused::default());
    }

    #[test]
    fn columns_that_do_not_fit_fail_whole() {
        let uneven = Some(Invalid::new("touches", "has columns of different lengths").into());
        assert_eq!(super::touches(asked(&["bob"], &["a"], 2)).err(), uneven);
        assert_eq!(super::touches(asked(&["bob", "eve"], &["a", ""], 1)).err(), uneven);
        let cut = wit::Touches {
            users: types::Ids { text: "é".to_owned(), lengths: vec![1, 1] },
            ..asked(&[], &["a", "b"], 2)
        };
        let whole = Some(Invalid::new("lengths", "do not cut the text into whole ids").into());
        assert_eq!(super::touches(cut).err(), whole);
        let many = vec!["x"; MAX_BATCH + 1];
        assert_eq!(super::touches(asked(&many, &many, MAX_BATCH + 1)).err(), Some(Error::TooMany(1024)));
    }
}
