//! The functions of both contracts do the same: for the same calls and the same answers from the capabilities, each makes the
//! same calls of capabilities and returns the same results.
//!
//! Arguments and the answers of capabilities are random values of the types in the contract, by a fixed seed. Streams, which
//! the contracts express differently, are left to `deployments.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::future::ready;

use rollcall_tests::compatibility::{self, Runs};
use rollcall_tests::component;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::component::{Component, Func, Linker, LinkerInstance, ResourceType, Val};
use wasmtime::{Config, Engine, Result, Store, StoreContextMut, bail};

const FUNCTIONS: [&str; 6] = ["heartbeat", "offline-sweep", "query", "restriction-check", "subscribe", "typing"];

/// Calls of each export, spread over this many instances.
const CALLS: u64 = 200;
const INSTANCES: u64 = 5;

/// After this many calls of capabilities within one call of a function, lists of due users are empty: a sweep ends when
/// nothing is due.
const BUSY: usize = 20;

const NOW_MS: u64 = 1_790_000_000_000;

/// Makes random values.
#[derive(Clone)]
struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn id(&mut self) -> String {
        match self.below(40) {
            0 => String::new(),
            1 => "x".repeat(129),
            2 => "tab\t".to_owned(),
            other => ["alice", "bob", "carol", "dora-ö", "7", "12345"][usize::try_from(other % 6).unwrap()].to_owned(),
        }
    }

    /// A value of this type. `items` is the length that its list or its columns should have.
    fn value(&mut self, of: &Type, items: Option<usize>) -> Val {
        match of {
            Type::Bool => Val::Bool(self.one_in(2)),
            Type::U8 => Val::U8(u8::try_from(self.below(256)).unwrap()),
            Type::U32 => Val::U32(u32::try_from(self.below(100_000)).unwrap()),
            Type::U64 => Val::U64(NOW_MS + self.below(200_000) - 100_000),
            Type::String => Val::String(self.id()),
            Type::Enum(cases) => {
                let names: Vec<_> = cases.names().collect();
                Val::Enum((*self.pick(&names)).to_owned())
            }
            Type::Option(of) if self.one_in(2) => Val::Option(Some(Box::new(self.value(&of.ty(), None)))),
            Type::Option(_) => Val::Option(None),
            Type::Result(of) if self.one_in(15) => Val::Result(Err(of.err().map(|of| Box::new(self.value(&of, None))))),
            Type::Result(of) => Val::Result(Ok(of.ok().map(|of| Box::new(self.value(&of, items))))),
            Type::Tuple(of) => Val::Tuple(of.types().map(|of| self.value(&of, None)).collect()),
            Type::List(of) => {
                let items = items.unwrap_or_else(|| usize::try_from(self.below(5)).unwrap());
                Val::List((0..items).map(|_| self.value(&of.ty(), None)).collect())
            }
            Type::Variant(of) => {
                let cases: Vec<_> = of.cases().map(|case| (case.name.to_owned(), case.ty)).collect();
                let (name, of) = self.pick(&cases).clone();
                Val::Variant(name, of.map(|of| Box::new(self.value(&of, None))))
            }
            Type::Record(of) => {
                self.record(of.fields().map(|field| (field.name.to_owned(), field.ty)).collect(), items)
            }
            other => panic!("the contract has no {other:?} outside of streams"),
        }
    }

    fn record(&mut self, fields: Vec<(String, Type)>, items: Option<usize>) -> Val {
        if fields.iter().map(|(name, _)| name.as_str()).eq(["text", "lengths"]) {
            return self.ids(items);
        }
        // In a record of columns all have one length, except those that name their items by index.
        let items = items.or_else(|| {
            let is_columns = fields.iter().any(|(name, _)| name == "users" || name == "devices" && fields.len() == 3);
            is_columns.then(|| usize::try_from(self.below(5)).unwrap())
        });
        let fields = fields.into_iter().map(|(name, of)| {
            let items = if ["stance-ends", "failures"].contains(&name.as_str()) { Some(0) } else { items };
            let value = self.value(&of, items);
            (name, value)
        });
        Val::Record(fields.collect())
    }

    /// Ids in one string.
    fn ids(&mut self, items: Option<usize>) -> Val {
        let ids: Vec<_> = (0..items.unwrap_or(3)).map(|_| self.id()).collect();
        let lengths = ids.iter().map(|id| Val::U8(u8::try_from(id.len()).unwrap())).collect();
        Val::Record(vec![("text".to_owned(), Val::String(ids.concat())), ("lengths".to_owned(), Val::List(lengths))])
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.next()).unwrap_or_default() % from.len()]
    }
}

/// The capabilities of one instance: they answer at random and record each call.
struct Capabilities {
    random: Random,
    calls: Vec<(String, Vec<Val>)>,
}

impl Capabilities {
    fn answer(&mut self, name: &str, of: &ComponentFunc, params: &[Val], results: &mut [Val]) {
        self.calls.push((name.to_owned(), params.to_vec()));
        let is_list = name.ends_with("#due") || name.ends_with("#evictable");
        let items = if is_list && self.calls.len() > BUSY { Some(0) } else { params.iter().find_map(items_of) };
        for (result, of) in results.iter_mut().zip(of.results()) {
            *result = if name.ends_with("settings#current") { rules(&of) } else { self.random.value(&of, items) };
        }
    }
}

/// How many items a batch has.
fn items_of(value: &Val) -> Option<usize> {
    match value {
        Val::List(items) => Some(items.len()),
        Val::Record(fields) => fields.iter().rev().find_map(|(_, field)| items_of(field)),
        _ => None,
    }
}

/// Fixed rules: times of a few seconds, and a small limit.
fn rules(of: &Type) -> Val {
    let Type::Record(of) = of else { panic!("rules are a record") };
    let value = |name: &str, of: &Type| match (name.contains("limit"), of) {
        (true, _) => Val::U32(4),
        (_, Type::U64) => Val::U64(5000),
        _ => Val::U32(5000),
    };
    Val::Record(of.fields().map(|field| (field.name.to_owned(), value(field.name, &field.ty))).collect())
}

/// One instance, and the functions it exports by name.
struct Instance {
    store: Store<Capabilities>,
    exports: Vec<(String, Func, ComponentFunc)>,
}

impl Instance {
    async fn new(component: &Component, seed: u64) -> Self {
        let engine = component.engine();
        let mut linker = Linker::new(engine);
        let of = component.component_type();
        for (name, item) in of.imports(engine) {
            let ComponentItem::ComponentInstance(interface) = item.ty else { continue };
            let mut linked = linker.instance(name).unwrap();
            for (export, item) in interface.exports(engine) {
                match item.ty {
                    ComponentItem::ComponentFunc(of) => {
                        link(&mut linked, export, format!("{}#{export}", plain(name)), of.async_()).unwrap();
                    }
                    ComponentItem::Resource(_) => {
                        linked.resource(export, ResourceType::host::<()>(), |_, _| Ok(())).unwrap();
                    }
                    _ => {}
                }
            }
        }
        let mut store = Store::new(engine, Capabilities { random: Random(seed), calls: Vec::new() });
        let instance = linker.instantiate_async(&mut store, component).await.unwrap();
        let mut exports = Vec::new();
        for (name, item) in of.exports(engine) {
            let ComponentItem::ComponentInstance(interface) = item.ty else { continue };
            let parent = instance.get_export_index(&mut store, None, name).unwrap();
            for (export, item) in interface.exports(engine) {
                let ComponentItem::ComponentFunc(of) = item.ty else { continue };
                if export == "feed" || export.starts_with('[') {
                    continue;
                }
                let index = instance.get_export_index(&mut store, Some(&parent), export).unwrap();
                let func = instance.get_func(&mut store, index).unwrap();
                exports.push((format!("{}#{export}", plain(name)), func, of));
            }
        }
        exports.sort_by(|a, b| a.0.cmp(&b.0));
        Self { store, exports }
    }

    /// Calls an export. Returns the result and the calls of capabilities.
    async fn call(&mut self, export: usize, params: &[Val]) -> (Vec<Val>, Vec<(String, Vec<Val>)>) {
        let (name, func, of) = &self.exports[export];
        let mut results = vec![Val::Bool(false); of.results().len()];
        let called = func.call_async(&mut self.store, params, &mut results).await;
        called.unwrap_or_else(|error| panic!("{name}({params:?}): {error:?}"));
        results.iter_mut().for_each(sort_unordered);
        (results, std::mem::take(&mut self.store.data_mut().calls))
    }
}

/// Sorts the lists of a result that have no order: they come out of a hash map.
fn sort_unordered(value: &mut Val) {
    let Val::Result(Ok(Some(result))) = value else { return };
    let Val::Record(fields) = &mut **result else { return };
    for (name, value) in fields {
        if let ("lags-ms" | "invalidated", Val::List(items)) = (name.as_str(), value) {
            items.sort_by_key(|item| format!("{item:?}"));
        }
    }
}

/// The same interface has another package in each contract.
fn plain(interface: &str) -> String {
    interface.replace("rollcall:presence-sync/", "rollcall:presence/")
}

fn link(linked: &mut LinkerInstance<'_, Capabilities>, export: &str, name: String, is_async: bool) -> Result<()> {
    if export == "watch" || export.starts_with('[') {
        let refuse = |_: StoreContextMut<'_, Capabilities>, _, _: &[Val], _: &mut [Val]| bail!("no streams here");
        return if is_async {
            linked
                .func_new_concurrent(export, |_, _, _, _| Box::pin(ready(Err(wasmtime::Error::msg("no streams here")))))
        } else {
            linked.func_new(export, refuse)
        };
    }
    if is_async {
        linked.func_new_concurrent(export, move |accessor, of, params, results| {
            accessor.with(|mut access| access.get().answer(&name, &of, params, results));
            Box::pin(ready(Ok(())))
        })
    } else {
        linked.func_new(export, move |mut store: StoreContextMut<'_, Capabilities>, of, params, results| {
            store.data_mut().answer(&name, &of, params, results);
            Ok(())
        })
    }
}

#[tokio::test]
async fn both_contracts_make_the_same_calls_and_return_the_same() {
    let mut config = Config::new();
    config.wasm_component_model_async(true);
    let engine = Engine::new(&config).unwrap();
    for function in FUNCTIONS {
        let asynchronous = Component::from_file(&engine, component(function)).unwrap();
        let synchronous = Component::from_file(&engine, component(&format!("sync/{function}"))).unwrap();
        let (mut calls, mut succeeded) = (0, 0);
        for seed in 0..INSTANCES {
            let mut one = Instance::new(&asynchronous, seed).await;
            let mut other = Instance::new(&synchronous, seed).await;
            let names =
                |instance: &Instance| instance.exports.iter().map(|export| export.0.clone()).collect::<Vec<_>>();
            assert_eq!(names(&one), names(&other));
            let mut random = Random(seed ^ 0xd1ff);
            for call in 0..CALLS {
                let export = usize::try_from(call).unwrap() % one.exports.len();
                let (name, _, of) = &one.exports[export];
                let name = name.clone();
                let params: Vec<_> = of.params().map(|(_, of)| random.value(&of, None)).collect();
                let (left, right) = (one.call(export, &params).await, other.call(export, &params).await);
                assert_eq!(left.1, right.1, "{function}: {name}({params:?}) calls differ");
                assert_eq!(left.0, right.0, "{function}: {name}({params:?}) results differ");
                calls += left.1.len();
                succeeded += usize::from(matches!(left.0[..], [Val::Result(Ok(_))]));
            }
        }
        let total = usize::try_from(CALLS * INSTANCES).unwrap();
        println!("{function}: {total} calls, of which {succeeded} succeeded, made {calls} calls of capabilities");
        assert!(succeeded > total / 4 && calls > total / 2, "{function}: the random calls reach too little");
    }
    compatibility::passed("Rust, with wasmtime", &compatibility::locked_version("wasmtime"), Runs::Functions);
}
