//! Beats as they cross the component boundary, packed column by column. Valid beats are tried; invalid ones are refused one by
//! one.

use rollcall_core::heartbeat::{Beat, BeatDetails, Beats};
use rollcall_core::{DeviceId, Error, Id, Ids, Invalid, Unfit, UserId};

use crate::capabilities::bounded;

/// Items that were refused, by rising index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Refused(Vec<(usize, Error)>);

impl Refused {
    /// Inserts the errors of these items into the answers to the others, in the order asked.
    pub fn among<T>(self, mut answers: Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
        for (place, error) in self.0 {
            answers.insert(place.min(answers.len()), Err(error));
        }
        answers
    }
}

/// A text and the lengths of the ids in it.
pub type Packed = (String, Vec<u8>);

/// The valid beats, and the refused ones. An error if the columns do not form a batch.
pub fn unpack(users: Packed, devices: Packed, details: Vec<BeatDetails>) -> Result<(Beats, Refused), Error> {
    bounded(&details)?;
    match (Ids::parse(users.0, users.1), Ids::parse(devices.0, devices.1)) {
        (Ok(users), Ok(devices)) if users.len() == details.len() && devices.len() == details.len() => {
            Ok((Beats { users, devices, details }, Refused::default()))
        }
        (users, devices) => one_by_one(&texts(&users)?, &texts(&devices)?, &details),
    }
}

/// The same, one by one, because at least one beat is invalid.
fn one_by_one(users: &[&str], devices: &[&str], details: &[BeatDetails]) -> Result<(Beats, Refused), Error> {
    if users.len() != details.len() || devices.len() != details.len() {
        return Err(Invalid::new("beats", "has columns of different lengths").into());
    }
    let (mut good, mut refused) = (Vec::new(), Refused::default());
    for (place, ((user, device), details)) in users.iter().zip(devices).zip(details).enumerate() {
        match UserId::parse(*user).and_then(|user| Ok((user, DeviceId::parse(*device)?))) {
            Ok((user, device)) => good.push(Beat { user, device, kind: details.kind, active: details.active }),
            Err(invalid) => refused.0.push((place, invalid.into())),
        }
    }
    Ok((good.into_iter().collect(), refused))
}

fn texts<I: Id>(ids: &Result<Ids<I>, Unfit>) -> Result<Vec<&str>, Error> {
    match ids {
        Ok(ids) => Ok(ids.iter().collect()),
        Err(unfit) => Ok(unfit.pieces()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use rollcall_core::DeviceKind;

    use super::*;
    use crate::capabilities::MAX_BATCH;

    const DETAILS: BeatDetails = BeatDetails { kind: DeviceKind::Web, active: true };

    fn packed(ids: &[&str]) -> Packed {
        (ids.concat(), ids.iter().map(|id| id.len() as u8).collect())
    }

    #[test]
    fn invalid_beats_are_refused_one_by_one() -> Result<(), Error> {
        let users = ["", "bob", "eve", "a\nb", "é"];
        let devices = ["web", "web", "", "web", "名"];
        let (good, refused) = unpack(packed(&users), packed(&devices), vec![DETAILS; 5])?;
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
    fn valid_beats_are_all_taken() -> Result<(), Error> {
        let (good, refused) = unpack(packed(&["bob", "eve"]), packed(&["a", "b"]), vec![DETAILS; 2])?;
        assert_eq!((good.users.len(), good.devices.len(), good.details.len()), (2, 2, 2));
        assert_eq!(refused, Refused::default());
        Ok(())
    }

    #[test]
    fn mismatched_columns_are_refused() {
        let refusal = |users: Packed, devices: Packed, details| unpack(users, devices, vec![DETAILS; details]).err();
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
        let refusal = unpack(packed(&users), packed(&devices), vec![DETAILS; MAX_BATCH + 1]).err();
        assert_eq!(refusal, Some(Error::TooMany(MAX_BATCH as u32)));
    }
}
