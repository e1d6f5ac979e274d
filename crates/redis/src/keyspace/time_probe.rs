//! Time and the outage grace for whoever has no task that watches over the store: one script that says both, and that
//! notices, because everybody calls it, when nobody did for too long.

use rollcall_core::{OutageGrace, Span, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::fields::number_of;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// What an outage grace depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeProbe {
    /// For how long nobody need reach the server without an outage grace.
    pub allowed: Span,
    /// How long an outage grace lasts.
    pub outage_grace: Span,
    /// When the caller first failed to reach the server since it last did, 0 if it knew no time then; none: it did not
    /// fail.
    pub failed: Option<Time>,
}

/// What is so now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeReply {
    /// The server's time in microseconds.
    pub now_us: u64,
    /// The outage grace in force.
    pub outage_grace: Option<OutageGrace>,
}

impl Keyspace {
    /// Adds the command that asks for the time and the outage grace in force; see [`decode_probe`].
    pub fn probe_time(&self, to: &mut Commands, reaching: TimeProbe) {
        self.evalsha(to, Script::TimeProbe, 3).key(self.probed()).key(self.hosts()).key(self.outage_grace());
        to.number(reaching.allowed.0).number(reaching.outage_grace.0);
        match reaching.failed {
            Some(at) => to.number(at.0),
            None => to.text(""),
        };
    }
}

/// What [`Keyspace::reach`] was answered.
pub fn decode_probe<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<ProbeReply, BadReply> {
    const WHAT: &str = "a script's answer";
    let mut next = || reply.next().unwrap_or(Piece::Nil).text(WHAT)?.ok_or(BadReply(WHAT));
    let (seconds, micros) = (number_of(next()?)?, number_of(next()?)?);
    let (since, until) = (next()?, next()?);
    let outage_grace = match since {
        "" => None,
        _ => Some(OutageGrace { since: Time(number_of(since)?), until: Time(number_of(until)?) }),
    };
    Ok(ProbeReply { now_us: seconds.saturating_mul(1_000_000).saturating_add(micros), outage_grace })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn whoever_failed_says_since_when() {
        let keys = Keyspace::of_hosts(256);
        for (failed, said) in [(None, ""), (Some(Time(0)), "0"), (Some(Time(7)), "7")] {
            let mut commands = Commands::default();
            keys.probe_time(&mut commands, TimeProbe { allowed: Span(60_000), outage_grace: Span(45_000), failed });
            let args = commands.get(0).unwrap().to_owned();
            let args: Vec<_> = args.iter().skip(2).map(|arg| std::str::from_utf8(arg).unwrap()).collect();
            assert_eq!(args, ["3", "rc:{0}:probed", "rc:{0}:hosts", "rc:{0}:outage_grace", "60000", "45000", said]);
        }
    }

    #[test]
    fn the_answer_is_the_time_and_an_outage_grace_if_there_is_one() {
        let read = |texts: &[&'static str]| decode_probe(texts.iter().map(|text| Piece::Bytes(text.as_bytes())));
        let now_us = 1_700_000_000_000_042;
        assert_eq!(read(&["1700000000", "42", "", ""]), Ok(ProbeReply { now_us, outage_grace: None }));
        let outage_grace = Some(OutageGrace { since: Time(5), until: Time(9) });
        assert_eq!(read(&["1700000000", "42", "5", "9"]), Ok(ProbeReply { now_us, outage_grace }));
        for bad in [&["1700000000"][..], &["x", "1", "", ""], &["1", "1", "5", ""], &["1", "1"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
