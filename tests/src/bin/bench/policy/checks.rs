//! Checks per second on one core: through the component, compared with the same policy index linked natively, with plain hash sets
//! and with Redis.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rollcall_core::policy::{Ruling, Verdict};
use rollcall_core::{Ids, UserId};
use rollcall_host::runtime::Checker;
use rollcall_policy::PolicyIndex;
use rollcall_servers::redis::Redis as Server;
use rollcall_store::SqliteArchive;

use super::baselines::{HashSets, RedisSets, used_memory};
use super::population::{self, Kind};
use super::{count, instance};
use crate::report::{Goal, Section, number, ratio};
use crate::sample::Comparison;
use crate::users::{self, Random};
use crate::wasm_and_native::{SLICE, in_turn};

/// Subjects per check.
const BATCHES: [usize; 3] = [1, 200, TARGET_BATCH];

/// The batch size with a target, in checks per second.
const TARGET_BATCH: usize = 10_000;
const TARGET: f64 = 5e6;

/// Labels of the subjects: the usual ones, and those of an empty policy, which show the fixed cost.
const MIXED: &str = "names and numbers";
const IDLE: &str = "names, nobody set anything";

/// Subjects prepared and then timed at once: see `functions.rs`.
const READY: usize = 256;

/// Subjects whose verdicts are compared before timing.
const COMPARED: usize = 100_000;

/// All contenders.
struct Contenders {
    checker: Checker,
    policy_index: PolicyIndex,
    /// A warm instance of an empty policy.
    idle: Checker,
    sets: HashSets,
    redis: RedisSets,
}

/// One call: viewer and subjects.
type Call = (UserId, Ids<UserId>);

/// Measures every batch size with every contender.
pub(crate) fn run() -> Result<Section> {
    let columns = [
        "subjects",
        "batch",
        "against",
        "component ns",
        "theirs ns",
        "component/theirs",
        "min–max",
        "component checks/s",
    ];
    let mut section = Section::new("policy-checks: verdicts through the component, on one core", &columns);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = Server::start()?;
    let empty = used_memory(&server)?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (mut contenders, took_s, bytes) = settle(&server).await?;
        let theirs = used_memory(&server)? - empty;
        compare(&mut contenders).await?;
        measure(&mut contenders, &mut section).await?;
        section.note(&format!(
            "{} restricted numbers out of {} (one in a hundred), {} blocked pairs among as many users with names of \
            36 bytes, and {} users who show presence to nobody. The instance needs {} MB for that, and loaded it \
            from SQLite in {took_s:.1} s. One subject in a hundred is hidden; of the names one in twenty is in a block \
            with another user. Times are per subject. The verdicts about {} subjects were compared before \
            timing.",
            number(population::RESTRICTED as f64),
            number(population::NUMBERED as f64),
            number(population::PAIRS as f64),
            number(population::SETTINGS as f64),
            number(bytes / 1e6),
            number(COMPARED as f64),
        ));
        section.note(&format!(
            "One thread, one call in flight. The component's side is everything a worker waits for: instance queue and both \
            crossings. Native is the same policy index, called as a function. Sets are a HashSet of strings and one of \
            pairs, looked up in both directions. Redis is one pipeline: SMISMEMBER of the viewer's blocks, and GETBIT for \
            each numeric subject; blocks of the viewer by others and settings are left out, because they would cost \
            another command per subject (and the sets have no settings either). Redis needs {} MB and runs in its own \
            process.",
            number(theirs / 1e6),
        ));
        Ok(section)
    })
}

/// Loads the same policy into every contender.
async fn settle(server: &Server) -> Result<(Contenders, f64, f64)> {
    let changes = population::changes()?;
    let policies = Arc::new(SqliteArchive::in_memory()?.policies());
    instance::apply(&*policies, changes.iter().cloned().map(Ok)).await?;
    let checker = instance::cold(policies).await?;
    let began = Instant::now();
    let freshness = instance::load(&checker).await?;
    let took_s = began.elapsed().as_secs_f64();
    let idle = instance::cold(Arc::new(SqliteArchive::in_memory()?.policies())).await?;
    instance::load(&idle).await?;
    let mut policy_index = PolicyIndex::new(0x5eed);
    changes.iter().for_each(|change| policy_index.apply(change));
    let contenders = Contenders {
        checker,
        policy_index,
        idle,
        sets: HashSets::of(&changes),
        redis: RedisSets::fill(server, &changes)?,
    };
    Ok((contenders, took_s, freshness.bytes as f64))
}

/// All contenders must give the same verdicts, as far as they know the policy.
async fn compare(contenders: &mut Contenders) -> Result<()> {
    let mut random = Random::new(3);
    for batch in BATCHES {
        for (viewer, subjects) in calls(Kind::Mixed, batch, COMPARED, &mut random)? {
            let ours = contenders.checker.check(Some(viewer.clone()), subjects.clone()).await?;
            let mut theirs = Vec::new();
            contenders.policy_index.check(Some(viewer.as_str()), subjects.iter(), &mut theirs);
            ensure!(ours == theirs, "the component and the policy_index disagree about what {viewer} may see");
            let known = |ruling: &Verdict| matches!(ruling.presence, Ruling::Restricted | Ruling::Blocked);
            let hidden: Vec<bool> = ours.iter().map(known).collect();
            ensure!(
                hidden == contenders.sets.hidden(viewer.as_str(), &subjects),
                "the sets disagree with the component"
            );
            ensure!(
                hidden == contenders.redis.hidden(viewer.as_str(), &subjects)?,
                "Redis disagrees with the component"
            );
        }
    }
    Ok(())
}

async fn measure(contenders: &mut Contenders, section: &mut Section) -> Result<()> {
    let Contenders { checker, policy_index, idle, sets, redis } = contenders;
    let (mut ours, mut theirs) = (Random::new(1), Random::new(2));
    let mut verdicts = Vec::new();
    for batch in BATCHES {
        let kind = Kind::Mixed;
        let component = async || through_component(checker, kind, batch, &mut ours).await;
        let native = async || timed(kind, batch, &mut theirs, |call| natively(policy_index, call, &mut verdicts));
        row(section, MIXED, batch, "native policy_index", &in_turn(component, native).await?);
        let component = async || through_component(checker, kind, batch, &mut ours).await;
        let plain = async || timed(kind, batch, &mut theirs, |(viewer, all)| Ok(sets.hidden(viewer.as_str(), &all)));
        row(section, MIXED, batch, "sets of texts", &in_turn(component, plain).await?);
        let component = async || through_component(checker, kind, batch, &mut ours).await;
        let asked = async || timed(kind, batch, &mut theirs, |(viewer, all)| redis.hidden(viewer.as_str(), &all));
        row(section, MIXED, batch, "Redis", &in_turn(component, asked).await?);
    }
    for kind in [Kind::Names, Kind::Numbers] {
        let component = async || through_component(checker, kind, TARGET_BATCH, &mut ours).await;
        let native =
            async || timed(kind, TARGET_BATCH, &mut theirs, |call| natively(policy_index, call, &mut verdicts));
        let subjects = if kind == Kind::Names { "names only" } else { "numbers only" };
        row(section, subjects, TARGET_BATCH, "native policy_index", &in_turn(component, native).await?);
    }
    let nothing = PolicyIndex::new(1);
    let component = async || through_component(idle, Kind::Names, TARGET_BATCH, &mut ours).await;
    let native = async || timed(Kind::Names, TARGET_BATCH, &mut theirs, |call| natively(&nothing, call, &mut verdicts));
    row(section, IDLE, TARGET_BATCH, "native policy_index", &in_turn(component, native).await?);
    Ok(())
}

fn row(section: &mut Section, subjects: &str, batch: usize, against: &str, comparison: &Comparison) {
    let (median, range) = ratio(comparison.ratio());
    let per_second = 1e9 / comparison.ours();
    let cells = [
        subjects.to_owned(),
        count(batch as f64),
        against.to_owned(),
        number(comparison.ours()),
        number(comparison.theirs()),
        median,
        range,
        number(per_second),
    ];
    section.row(
        cells,
        if batch == TARGET_BATCH && subjects != IDLE { Goal::AtLeast(TARGET) } else { Goal::None },
        per_second,
    );
}

/// Prepared calls. Large ones include a subject that the viewer blocked.
fn calls(kind: Kind, batch: usize, subjects: usize, random: &mut Random) -> Result<Vec<Call>> {
    let call = |place: usize| {
        let owner = random.below(population::PAIRS);
        let mut ids = Ids::with_capacity(batch);
        for place in place * batch..(place + 1) * batch {
            let is_enemy = kind != Kind::Numbers && batch > 1 && place % batch == 0;
            ids.push(&UserId::parse(match is_enemy {
                true => users::name(population::blocked_by(owner, population::PAIRS)),
                false => population::subject(kind, place, random),
            })?);
        }
        Ok((UserId::parse(users::name(owner))?, ids))
    };
    (0..subjects.div_ceil(batch)).map(call).collect()
}

/// Nanoseconds per subject in one slice.
async fn through_component(checker: &Checker, kind: Kind, batch: usize, random: &mut Random) -> Result<f64> {
    let (mut spent, mut asked) = (Duration::ZERO, 0);
    while spent < SLICE {
        let calls = calls(kind, batch, READY, random)?;
        asked += calls.len() * batch;
        let began = Instant::now();
        for (viewer, subjects) in calls {
            black_box(checker.check(Some(viewer), subjects).await?);
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / asked as f64)
}

/// Nanoseconds per subject in one slice.
fn timed<T>(kind: Kind, batch: usize, random: &mut Random, mut ask: impl FnMut(Call) -> Result<T>) -> Result<f64> {
    let (mut spent, mut asked) = (Duration::ZERO, 0);
    while spent < SLICE {
        let calls = calls(kind, batch, READY, random)?;
        asked += calls.len() * batch;
        let began = Instant::now();
        for call in calls {
            black_box(ask(call)?);
        }
        spent += began.elapsed();
    }
    Ok(spent.as_nanos() as f64 / asked as f64)
}

fn natively(policy_index: &PolicyIndex, (viewer, subjects): Call, verdicts: &mut Vec<Verdict>) -> Result<usize> {
    verdicts.clear();
    policy_index.check(Some(viewer.as_str()), subjects.iter(), verdicts);
    Ok(verdicts.len())
}
