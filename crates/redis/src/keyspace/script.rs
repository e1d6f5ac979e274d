//! The scripts: changes that must be atomic. The header of each file names the race it closes.

use std::sync::OnceLock;

/// A script, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Script {
    /// Changes one session by compare-and-swap.
    Commit,
    /// Reads the records of users whose `alive` key has none.
    Records,
    /// Deletes a session that did not change.
    Evict,
    /// Records a departure.
    Depart,
    /// Keeps a session's devices within the bound.
    Trim,
    /// Records an outage.
    OutageGrace,
    /// Returns the time and the outage grace in force, for platforms without background tasks.
    TimeProbe,
    /// Stores a typing signal and publishes it.
    Typing,
    /// Adds up a user's watchers.
    Watchers,
    /// Sets or removes one setting of a user.
    SetPolicyField,
    /// Sets or clears the restriction of one numeric account.
    RestrictAccount,
    /// Sets or clears the restriction of many numeric accounts of one page.
    RestrictPage,
}

/// A script with a shared function in front: Redis runs each script on its own.
macro_rules! with {
    ($shared:literal, $name:literal) => {
        concat!(
            include_str!(concat!("../../lua/", $shared, ".lua")),
            "\n",
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

impl Script {
    /// All of them.
    pub const ALL: [Script; 12] = [
        Self::Commit,
        Self::Records,
        Self::Evict,
        Self::Depart,
        Self::Trim,
        Self::OutageGrace,
        Self::TimeProbe,
        Self::Typing,
        Self::Watchers,
        Self::SetPolicyField,
        Self::RestrictAccount,
        Self::RestrictPage,
    ];

    /// Shared functions: merging outage graces, picking the newer of a device's two beats, and logging a change.
    pub const SHARED: [&str; 3] = ["merge_outage_grace", "newest_beat", "append_log"];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Records => "records",
            Self::Evict => "evict",
            Self::Depart => "depart",
            Self::Trim => "trim",
            Self::OutageGrace => "outage_grace",
            Self::TimeProbe => "time_probe",
            Self::Typing => "typing",
            Self::Watchers => "watchers",
            Self::SetPolicyField => "set_policy_field",
            Self::RestrictAccount => "restrict_account",
            Self::RestrictPage => "restrict_page",
        }
    }

    /// Its text, for `SCRIPT LOAD`.
    pub fn source(self) -> &'static str {
        match self {
            Self::Commit => with!("newest_beat", "commit"),
            Self::Records => include_str!("../../lua/records.lua"),
            Self::Evict => include_str!("../../lua/evict.lua"),
            Self::Depart => with!("newest_beat", "depart"),
            Self::Trim => with!("newest_beat", "trim"),
            Self::OutageGrace => with!("merge_outage_grace", "outage_grace"),
            Self::TimeProbe => with!("merge_outage_grace", "time_probe"),
            Self::Typing => include_str!("../../lua/typing.lua"),
            Self::Watchers => include_str!("../../lua/watchers.lua"),
            Self::SetPolicyField => with!("append_log", "set_policy_field"),
            Self::RestrictAccount => with!("append_log", "restrict_account"),
            Self::RestrictPage => with!("append_log", "restrict_page"),
        }
    }

    /// Its digest, for `EVALSHA`.
    pub(crate) fn digest(self) -> String {
        sha1_smol::Sha1::from(self.source()).digest().to_string()
    }
}

/// The digests of the scripts, each computed when it is first used: on a platform with an instance for each request few are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests([OnceLock<String>; 12]);

impl Digests {
    pub(crate) fn of(&self, script: Script) -> &str {
        let Self(
            [
                commit,
                records,
                evict,
                depart,
                trim,
                outage_grace,
                time_probe,
                typing,
                watchers,
                set_policy_field,
                restrict_account,
                restrict_page,
            ],
        ) = self;
        let digest = match script {
            Script::Commit => commit,
            Script::Records => records,
            Script::Evict => evict,
            Script::Depart => depart,
            Script::Trim => trim,
            Script::OutageGrace => outage_grace,
            Script::TimeProbe => time_probe,
            Script::Typing => typing,
            Script::Watchers => watchers,
            Script::SetPolicyField => set_policy_field,
            Script::RestrictAccount => restrict_account,
            Script::RestrictPage => restrict_page,
        };
        digest.get_or_init(|| script.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_a_complete_header() {
        for script in Script::ALL {
            // The shared function comes first and has its own comment.
            let shared = [
                include_str!("../../lua/merge_outage_grace.lua"),
                include_str!("../../lua/newest_beat.lua"),
                include_str!("../../lua/append_log.lua"),
            ];
            let own = shared.iter().find_map(|shared| script.source().strip_prefix(shared)).map(str::trim_start);
            let own = own.unwrap_or(script.source());
            let header: Vec<&str> = own.lines().take_while(|line| line.starts_with("--")).collect();
            for part in ["-- Purpose:", "-- KEYS:", "-- ARGV:", "-- Reply:", "-- Race:"] {
                assert!(header.iter().any(|line| line.starts_with(part)), "{} lacks {part}", script.name());
            }
        }
    }

    #[test]
    fn digests_match_the_sources() {
        let digests = Digests::default();
        for script in Script::ALL {
            assert_eq!(digests.of(script), script.digest());
            assert_eq!(script.digest().len(), 40);
        }
    }

    /// An argument that a header numbers but the script does not use, or the reverse, is a mistake.
    #[test]
    fn headers_number_the_arguments_used() {
        for script in Script::ALL {
            for list in ["KEYS", "ARGV"] {
                let used = (1..=30).filter(|n| script.source().contains(&format!("{list}[{n}]"))).max().unwrap_or(0);
                let section: String = script
                    .source()
                    .lines()
                    .skip_while(|line| !line.starts_with(&format!("-- {list}:")))
                    .enumerate()
                    .take_while(|(index, line)| *index == 0 || line.starts_with("--     "))
                    .map(|(_, line)| format!(" {line}"))
                    .collect();
                let named = (1..=30).filter(|n| section.contains(&format!(" {n} "))).max().unwrap_or(0);
                assert_eq!(used, named, "{list} of {}", script.name());
            }
        }
    }
}
