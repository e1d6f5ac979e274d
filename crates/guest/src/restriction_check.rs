//! The restriction check, as the functions that ask it know it.

use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{RestrictionCheck, Visibility};

use crate::codec::{error_in, ids_out};
use crate::wit::restriction_check::{self as wit, Ruling};

/// The verdicts of whatever provides `restriction-check`.
pub struct PlatformRestrictionCheck;

impl RestrictionCheck for PlatformRestrictionCheck {
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdicts = wit::check(viewer.map(UserId::into_string), ids_out(subjects)).await.map_err(error_in)?;
        Ok(verdicts
            .into_iter()
            .map(|verdict| Visibility {
                presence: match verdict.presence {
                    Ruling::Allowed => true,
                    Ruling::Restricted | Ruling::Blocked | Ruling::Private => false,
                },
                last_seen: verdict.last_seen,
            })
            .collect())
    }
}
