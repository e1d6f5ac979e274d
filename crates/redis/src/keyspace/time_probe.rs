//! The time probe, for platforms without background tasks: one script returns the time and the outage grace. Every
//! caller runs it, so it notices when no caller reached the server for too long.

use rollcall_core::{OutageGrace, Span, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::fields::number_of;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// When to record an outage grace, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeProbe {
    /// The longest time without any caller that needs no outage grace.
    pub allowed: Span,
    /// How long an outage grace lasts.
    pub outage_grace: Span,
    /// When the caller first failed to reach the server since its last success, 0 if it knew no time then; `None` if
    /// it did not fail.
    pub failed: Option<Time>,
}

/// The reply of the time probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeReply {
    /// The server's time in microseconds.
    pub now_us: u64,
    /// The outage grace in force.
    pub outage_grace: Option<OutageGrace>,
}

impl Keyspace {
    /// Adds the command of the time probe; see [`decode_probe`].
    pub fn probe_time(&self, to: &mut Commands, probe: TimeProbe) {
        self.evalsha(to, Script::TimeProbe, 3).key(self.probed()).key(self.hosts()).key(self.outage_grace());
        to.number(probe.allowed.0).number(probe.outage_grace.0);
        match probe.failed {
            Some(at) => to.number(at.0),
            None => to.text(""),
        };
    }
}

/// The reply to [`Keyspace::probe_time`].
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
    fn probe_sends_when_the_caller_failed() {
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
    fn probe_reply_has_time_and_optional_grace() {
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
