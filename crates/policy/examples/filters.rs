//! Benchmark of filters in front of the exact policy tables, and of checks with the chosen one.
//!
//! `cargo run --release -p rollcall-policy --example filters [filters|curve|index]`
//!
//! Prints the tables of `docs/adr/0014-bloom-filter-for-policy.md`. Times are those of the fastest tenth of batches of
//! a few microseconds that share no data: other programs make a batch slower, never faster.

use std::collections::HashSet;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use rollcall_core::UserId;
use rollcall_core::policy::{Audience, PolicyChange, Privacy, Ruling, Verdict, number_of};
use rollcall_policy::{BITS_PER_KEY, BloomFilter, PolicyIndex, false_positive_rate};
use xorf::Filter as _;

/// Lookups per measurement.
const LOOKS: usize = 1_000_000;
/// Lookups that are timed together.
const TOGETHER: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let part = std::env::args().nth(1).unwrap_or_default();
    if part.is_empty() || part == "filters" {
        for keys in [1_000_000, 10_000_000] {
            filters(keys)?;
        }
    }
    if part.is_empty() || part == "curve" {
        curve();
    }
    if part.is_empty() || part == "index" {
        policy_index()?;
    }
    Ok(())
}

/// A kind of filter, as far as it is measured here.
trait Kind: Sized {
    const NAME: &'static str;
    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>>;
    fn contains(&self, key: u64) -> bool;
    fn bits(&self) -> u64;
    /// Adds one; false if it cannot.
    fn add(&mut self, _key: u64) -> bool {
        false
    }
    /// Removes one; false if it cannot.
    fn remove(&mut self, _key: u64) -> bool {
        false
    }
}

/// A classic Bloom filter: every bit anywhere.
struct Classic {
    words: Vec<u64>,
    bits: u64,
}

impl Classic {
    /// The best number of bits to set at 12 bits a key is 12 ln 2.
    const BITS_SET: u64 = 8;

    /// Two hashes make all of them, as Kirsch and Mitzenmacher showed.
    fn places(&self, key: u64) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (bits, step) = (self.bits, mix(key) | 1);
        (0..Self::BITS_SET).map(move |number| {
            let hash = key.wrapping_add(number.wrapping_mul(step));
            let place = ((u128::from(hash) * u128::from(bits)) >> 64) as u64;
            ((place / 64) as usize, (place % 64) as u32)
        })
    }
}

impl Kind for Classic {
    const NAME: &'static str = "Bloom, 12 bits";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        let bits = keys.len() as u64 * 12;
        let mut built = Self { words: vec![0; bits.div_ceil(64) as usize], bits };
        for key in keys {
            built.add(*key);
        }
        Ok(built)
    }

    fn contains(&self, key: u64) -> bool {
        self.places(key).all(|(word, bit)| self.words.get(word).is_some_and(|word| word >> bit & 1 == 1))
    }

    fn bits(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    fn add(&mut self, key: u64) -> bool {
        for (word, bit) in self.places(key) {
            if let Some(word) = self.words.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        true
    }
}

impl Kind for BloomFilter {
    const NAME: &'static str = "blocked Bloom, 12 bits";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        let mut built = BloomFilter::new(u32::try_from(keys.len())?, BITS_PER_KEY);
        keys.iter().for_each(|key| built.set(*key));
        Ok(built)
    }

    fn contains(&self, key: u64) -> bool {
        self.may_contain(key)
    }

    fn bits(&self) -> u64 {
        BloomFilter::bits(self)
    }

    fn add(&mut self, key: u64) -> bool {
        self.set(key);
        true
    }
}

impl Kind for xorf::BinaryFuse8 {
    const NAME: &'static str = "binary fuse 8";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        Ok(Self::try_from(keys)?)
    }

    fn contains(&self, key: u64) -> bool {
        xorf::Filter::contains(self, &key)
    }

    fn bits(&self) -> u64 {
        self.len() as u64 * 8
    }
}

impl Kind for xorf::BinaryFuse16 {
    const NAME: &'static str = "binary fuse 16";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        Ok(Self::try_from(keys)?)
    }

    fn contains(&self, key: u64) -> bool {
        xorf::Filter::contains(self, &key)
    }

    fn bits(&self) -> u64 {
        self.len() as u64 * 16
    }
}

impl Kind for qfilter::Filter {
    const NAME: &'static str = "quotient (qfilter)";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        // With room for what is added later, and the false positive rate of the blocked Bloom filter.
        let mut built = Self::new(keys.len() as u64 * 21 / 20, 0.005).map_err(|error| format!("{error:?}"))?;
        for key in keys {
            built.add(*key);
        }
        Ok(built)
    }

    fn contains(&self, key: u64) -> bool {
        self.contains_fingerprint(key)
    }

    fn bits(&self) -> u64 {
        self.memory_usage() as u64 * 8
    }

    fn add(&mut self, key: u64) -> bool {
        self.insert_fingerprint(true, key).is_ok()
    }

    fn remove(&mut self, key: u64) -> bool {
        self.remove_fingerprint(key)
    }
}

/// An exact table instead of a filter.
struct Exact(HashTable<u64>);

impl Kind for Exact {
    const NAME: &'static str = "hashbrown, exact";

    fn build(keys: &[u64]) -> Result<Self, Box<dyn Error>> {
        let mut built = Self(HashTable::new());
        for key in keys {
            built.add(*key);
        }
        Ok(built)
    }

    fn contains(&self, key: u64) -> bool {
        self.0.find(key, |found| *found == key).is_some()
    }

    fn bits(&self) -> u64 {
        self.0.allocation_size() as u64 * 8
    }

    fn add(&mut self, key: u64) -> bool {
        self.0.insert_unique(key, key, |key| *key);
        true
    }

    fn remove(&mut self, key: u64) -> bool {
        self.0.find_entry(key, |found| *found == key).map(|entry| entry.remove()).is_ok()
    }
}

fn filters(keys: u64) -> Result<(), Box<dyn Error>> {
    println!("\n{keys} keys\n");
    println!("| kind | bits a key | false positives | absent | present | add | remove | rebuild of 1/256 |");
    println!("|---|---|---|---|---|---|---|---|");
    let keys = (0..keys).map(mix).collect::<Vec<_>>();
    row::<Classic>(&keys)?;
    row::<BloomFilter>(&keys)?;
    row::<xorf::BinaryFuse8>(&keys)?;
    row::<xorf::BinaryFuse16>(&keys)?;
    row::<qfilter::Filter>(&keys)?;
    row::<Exact>(&keys)
}

fn row<K: Kind>(keys: &[u64]) -> Result<(), Box<dyn Error>> {
    let mut built = K::build(keys)?;
    let absent = (0..LOOKS as u64).map(|number| mix(u64::MAX - number)).collect::<Vec<_>>();
    let mut random = 1;
    let present = (0..LOOKS).filter_map(|_| keys.get(next(&mut random) as usize % keys.len()).copied());
    let present = present.collect::<Vec<_>>();
    let false_positives = absent.iter().filter(|key| built.contains(**key)).count();
    if !present.iter().all(|key| built.contains(*key)) {
        return Err(format!("{} misses a key that it has", K::NAME).into());
    }
    let (bits, looks) = (built.bits() as f64 / keys.len() as f64, [&absent, &present].map(|keys| looked(&built, keys)));
    // New keys, few enough that nothing outgrows its size; removed again in another order.
    let passing = (0..keys.len() as u64 / 50).map(|number| mix(1 << 40 | number)).collect::<Vec<_>>();
    let added = changed(&passing, |key| built.add(key));
    let removed = changed(&passing.iter().rev().copied().collect::<Vec<_>>(), |key| built.remove(key));
    let part = keys.get(..keys.len() / 256).unwrap_or_default();
    let rebuilt = undisturbed((0..21).map(|_| timed(|| K::build(part).map(|built| built.bits()).unwrap_or_default())));
    println!(
        "| {} | {bits:.1} | {:.3} % | {:.1} ns | {:.1} ns | {added} | {removed} | {:.2} ms |",
        K::NAME,
        false_positives as f64 * 100.0 / LOOKS as f64,
        looks.first().copied().unwrap_or_default(),
        looks.last().copied().unwrap_or_default(),
        rebuilt.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Nanoseconds per lookup.
fn looked<K: Kind>(built: &K, keys: &[u64]) -> f64 {
    let look = |keys: &[u64]| timed(|| keys.iter().filter(|key| built.contains(**key)).count());
    undisturbed(keys.chunks_exact(TOGETHER).map(look)).as_nanos() as f64 / TOGETHER as f64
}

/// Nanoseconds per change, if the filter supports it.
fn changed(keys: &[u64], mut change: impl FnMut(u64) -> bool) -> String {
    let mut possible = true;
    let spent = undisturbed(
        keys.chunks_exact(TOGETHER).map(|keys| timed(|| keys.iter().for_each(|key| possible &= change(*key)))),
    );
    if possible { format!("{:.0} ns", spent.as_nanos() as f64 / TOGETHER as f64) } else { "by rebuilding".to_owned() }
}

fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(run());
    started.elapsed()
}

/// The upper end of the fastest tenth.
fn undisturbed(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times = times.collect::<Vec<_>>();
    times.sort_unstable();
    times.get(times.len() / 10).copied().unwrap_or_default()
}

/// The false positive rate of the chosen filter by its size, as CSV.
fn curve() {
    println!("\nbits_per_key,false_positive_rate");
    for bits_per_key in [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 24.0] {
        println!("{bits_per_key},{:.6}", false_positive_rate(1_000_000, bits_per_key, 1));
    }
}

/// The obvious implementation: plain sets.
#[derive(Default)]
struct Plain {
    restricted: HashSet<u64>,
    blocks: HashSet<(String, String)>,
}

impl Plain {
    fn check<'a>(&self, viewer: &str, subjects: impl Iterator<Item = &'a str>, verdicts: &mut Vec<Verdict>) {
        let (mut there, mut back) = ((viewer.to_owned(), String::new()), (String::new(), viewer.to_owned()));
        verdicts.extend(subjects.map(|subject| {
            there.1.clear();
            there.1.push_str(subject);
            back.0.clear();
            back.0.push_str(subject);
            let hidden = |presence| Verdict { presence, last_seen: false };
            if number_of(subject).is_some_and(|number| self.restricted.contains(&u64::from(number))) {
                hidden(Ruling::Restricted)
            } else if self.blocks.contains(&there) || self.blocks.contains(&back) {
                hidden(Ruling::Blocked)
            } else {
                Verdict::OPEN
            }
        }));
    }
}

const PEOPLE: u64 = 1_000_000;
const SETTINGS: u64 = 100_000;
/// Restricted numbers are every eighth of the first eight million, at random.
const NUMBERS: u64 = 8_000_000;

/// Sixteen bytes.
fn name(number: u64) -> String {
    format!("u{number:015x}")
}

fn policy_index() -> Result<(), Box<dyn Error>> {
    let (mut policy_index, mut plain, mut random) = (PolicyIndex::new(0x5eed), Plain::default(), 7);
    let mut changes = Vec::new();
    for number in 0..PEOPLE {
        let (one, other) = (name(number), name(next(&mut random) % PEOPLE));
        changes.push(PolicyChange::Block(UserId::parse(one.clone())?, UserId::parse(other.clone())?));
        plain.blocks.insert((one, other));
        let restricted = next(&mut random) % NUMBERS;
        changes.push(PolicyChange::Restrict(UserId::parse(restricted.to_string())?));
        plain.restricted.insert(restricted);
    }
    for number in 0..SETTINGS {
        let privacy = Privacy { presence: Audience::Everyone, last_seen: Audience::Contacts };
        changes.push(PolicyChange::SetPrivacy(UserId::parse(name(PEOPLE + number))?, privacy));
    }
    let started = Instant::now();
    let applied = undisturbed(
        changes.chunks(TOGETHER).map(|changes| timed(|| changes.iter().for_each(|one| policy_index.apply(one)))),
    );
    println!("\n{policy_index:?}\n{:?}", policy_index.filter_stats());
    let (each, all) = (applied.as_nanos() as f64 / TOGETHER as f64, started.elapsed().as_secs_f64());
    println!("{} changes in {all:.1} s, {each:.0} ns each but for rebuilds", changes.len());
    println!(
        "\n| subjects | one at once | 200 at once | 10,000 at once | 200, without filter | 200, plain sets |\n|---|---|---|---|---|---|"
    );
    let kinds: [(&str, &dyn Fn(u64) -> String); 4] = [
        ("unknown", &|random| name(1 << 40 | random)),
        ("in blocks with others", &|random| name(random % PEOPLE)),
        ("with settings", &|random| name(PEOPLE + random % SETTINGS)),
        ("numbers, one in eight restricted", &|random| (random % NUMBERS).to_string()),
    ];
    for (kind, subject) in kinds {
        checks(&policy_index, &plain, kind, subject);
    }
    Ok(())
}

/// Checks a viewer's subjects.
type Check<'a> = dyn Fn(&str, &[&str], &mut Vec<Verdict>) + 'a;

fn checks(policy_index: &PolicyIndex, plain: &Plain, kind: &str, subject: &dyn Fn(u64) -> String) {
    const SUBJECTS: usize = 400_000;
    let mut random = 11;
    // Concatenated in one text, as a batch arrives.
    let subjects = (0..SUBJECTS).map(|_| subject(next(&mut random))).collect::<Vec<_>>();
    let text = subjects.concat();
    let mut rest = text.as_str();
    let pieces = subjects.iter().filter_map(|subject| {
        let (piece, after) = rest.split_at_checked(subject.len())?;
        rest = after;
        Some(piece)
    });
    let pieces = pieces.collect::<Vec<_>>();
    let viewers = (0..SUBJECTS).map(|_| name(next(&mut random) % PEOPLE)).collect::<Vec<_>>();
    let mut verdicts = Vec::with_capacity(SUBJECTS);
    let mut each = |batch: usize, check: &Check<'_>| {
        let mut viewers = viewers.iter().cycle();
        let together = batch.max(200);
        let times = pieces.chunks_exact(together).map(|pieces| {
            verdicts.clear();
            let batches = pieces.chunks(batch).zip(&mut viewers);
            timed(|| batches.for_each(|(subjects, viewer)| check(viewer, subjects, &mut verdicts)))
        });
        undisturbed(times).as_nanos() as f64 / together as f64
    };
    let by_policy_index = |viewer: &str, subjects: &[&str], verdicts: &mut Vec<Verdict>| {
        policy_index.check(Some(viewer), subjects.iter().copied(), verdicts);
    };
    let by_plain = |viewer: &str, subjects: &[&str], verdicts: &mut Vec<Verdict>| {
        plain.check(viewer, subjects.iter().copied(), verdicts);
    };
    let by_relation = |viewer: &str, subjects: &[&str], verdicts: &mut Vec<Verdict>| {
        verdicts.extend(subjects.iter().map(|subject| policy_index.relation(Some(viewer), subject).verdict()));
    };
    let [one, some, many] = [1, 200, 10_000].map(|batch| each(batch, &by_policy_index));
    let [exactly, plainly] = [each(200, &by_relation), each(200, &by_plain)];
    println!("| {kind} | {one:.1} ns | {some:.1} ns | {many:.1} ns | {exactly:.1} ns | {plainly:.1} ns |");
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*random)
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
