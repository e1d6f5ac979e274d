//! Batches in which an invalid item fails alone, at its index.

use rollcall_core::heartbeat::{BeatDetails, Beats};
use rollcall_core::{DeviceId, Error, Id, Ids, Invalid, InvalidIds, UserId};

use crate::capabilities::{DeviceEvent, MAX_BATCH, Touches, bounded};

/// Invalid items, by rising index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Refused(Vec<(usize, Invalid)>);

impl Refused {
    /// The answers to the valid items, with these inserted at their indexes.
    pub fn among<T>(self, mut answers: Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
        for (index, invalid) in self.0 {
            answers.insert(index.min(answers.len()), Err(invalid.into()));
        }
        answers
    }
}

/// Converts the valid items and sets the others apart.
pub fn fit<W, T>(items: impl IntoIterator<Item = W>, convert: impl Fn(W) -> Result<T, Invalid>) -> (Vec<T>, Refused) {
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

/// Ids as they cross the component boundary: a text, and the length of each id in it.
pub type Packed = (String, Vec<u8>);

/// The valid beats, and the refused ones. An error: the columns do not fit together.
pub fn beats(users: Packed, devices: Packed, details: Vec<BeatDetails>) -> Result<(Beats, Refused), Error> {
    let ((users, devices, details), refused) = columns("beats", users, devices, details)?;
    Ok((Beats { users, devices, details }, refused))
}

/// The valid touches, and the refused ones. An error: the columns do not fit together.
pub fn touches(users: Packed, devices: Packed, events: Vec<DeviceEvent>) -> Result<(Touches, Refused), Error> {
    let ((users, devices, events), refused) = columns("touches", users, devices, events)?;
    Ok((Touches { users, devices, events }, refused))
}

type Columns<T> = (Ids<UserId>, Ids<DeviceId>, Vec<T>);

fn columns<T: Copy>(name: &str, users: Packed, devices: Packed, rest: Vec<T>) -> Result<(Columns<T>, Refused), Error> {
    bounded(rest.len(), MAX_BATCH)?;
    match (Ids::parse(users.0, users.1), Ids::parse(devices.0, devices.1)) {
        (Ok(users), Ok(devices)) if users.len() == rest.len() && devices.len() == rest.len() => {
            Ok(((users, devices, rest), Refused::default()))
        }
        (users, devices) => one_by_one(name, &texts(&users)?, &texts(&devices)?, &rest),
    }
}

/// The slow path: at least one id is invalid.
fn one_by_one<T: Copy>(
    name: &str,
    users: &[&str],
    devices: &[&str],
    rest: &[T],
) -> Result<(Columns<T>, Refused), Error> {
    if users.len() != rest.len() || devices.len() != rest.len() {
        return Err(Invalid::new(name, "has columns of different lengths").into());
    }
    let parse =
        |((user, device), rest): ((&&str, &&str), &T)| Ok((UserId::parse(*user)?, DeviceId::parse(*device)?, *rest));
    let (good, refused) = fit(users.iter().zip(devices).zip(rest), parse);
    let users = good.iter().map(|(user, ..)| user).collect();
    let devices = good.iter().map(|(_, device, _)| device).collect();
    Ok(((users, devices, good.into_iter().map(|(.., rest)| rest).collect()), refused))
}

fn texts<I: Id>(ids: &Result<Ids<I>, InvalidIds>) -> Result<Vec<&str>, Error> {
    match ids {
        Ok(ids) => Ok(ids.iter().collect()),
        Err(invalid) => Ok(invalid.pieces()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use rollcall_core::{DeviceKind, Span};

    use super::*;

    const DETAILS: BeatDetails = BeatDetails { kind: DeviceKind::Web, active: true };

    fn packed(ids: &[&str]) -> Packed {
        (ids.concat(), ids.iter().map(|id| id.len() as u8).collect())
    }

    #[test]
    fn invalid_beats_are_refused_one_by_one() -> Result<(), Error> {
        let users = ["", "bob", "eve", "a\nb", "é"];
        let devices = ["web", "web", "", "web", "名"];
        let (good, refused) = beats(packed(&users), packed(&devices), vec![DETAILS; 5])?;
        assert_eq!(good.users.iter().collect::<Vec<_>>(), ["bob", "é"]);
        assert_eq!(good.devices.iter().collect::<Vec<_>>(), ["web", "名"]);
        let invalid = |field: &str, rule: &str| Err(Error::from(Invalid::new(field, rule)));
        let answers = [
            invalid("user", "is empty"),
            Ok("bob"),
            invalid("device", "is empty"),
            invalid("user", "contains a control character"),
            Ok("é"),
        ];
        assert_eq!(refused.among(vec![Ok("bob"), Ok("é")]), answers);
        Ok(())
    }

    #[test]
    fn invalid_touches_are_refused_one_by_one() -> Result<(), Error> {
        let events = vec![DeviceEvent::Dropped(Span(7)), DeviceEvent::Logout, DeviceEvent::Logout];
        let (good, refused) = touches(packed(&["a\nb", "eve", "bob"]), packed(&["web", "", "web"]), events)?;
        assert_eq!(good.iter().collect::<Vec<_>>(), [("bob", "web", DeviceEvent::Logout)]);
        let indexes: Vec<bool> = refused.among(vec![Ok(())]).iter().map(Result::is_ok).collect();
        assert_eq!(indexes, [false, false, true]);
        let uneven = touches(packed(&["bob"]), packed(&["a"]), vec![DeviceEvent::Logout; 2]).err();
        assert_eq!(uneven, Some(Invalid::new("touches", "has columns of different lengths").into()));
        Ok(())
    }

    #[test]
    fn valid_beats_are_all_taken() -> Result<(), Error> {
        let (good, refused) = beats(packed(&["bob", "eve"]), packed(&["a", "b"]), vec![DETAILS; 2])?;
        assert_eq!((good.users.len(), good.devices.len(), good.details.len()), (2, 2, 2));
        assert_eq!(refused, Refused::default());
        Ok(())
    }

    #[test]
    fn mismatched_columns_are_refused() {
        let refusal = |users: Packed, devices: Packed, details| beats(users, devices, vec![DETAILS; details]).err();
        let uneven = Some(Invalid::new("beats", "has columns of different lengths").into());
        assert_eq!(refusal(packed(&["bob"]), packed(&["a"]), 2), uneven);
        assert_eq!(refusal(packed(&["bob", "eve"]), packed(&["a", ""]), 1), uneven);
        let cut = Some(Invalid::new("lengths", "do not cut the text into whole ids").into());
        assert_eq!(refusal(("é".to_owned(), vec![1, 1]), packed(&["a", "b"]), 2), cut);
    }

    #[test]
    fn invalid_beats_count_towards_the_limit() {
        let users = vec![""; MAX_BATCH + 1];
        let devices = vec!["web"; MAX_BATCH + 1];
        let refusal = beats(packed(&users), packed(&devices), vec![DETAILS; MAX_BATCH + 1]).err();
        assert_eq!(refusal, Some(Error::TooMany(MAX_BATCH as u32)));
    }
}
