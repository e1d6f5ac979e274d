//! A host of your own: it loads two functions, provides what they import, sends heartbeats for bob and queries presence.
//!
//! ```sh
//! embed heartbeat.wasm query.wasm
//! ```
//!
//! Of Rollcall it uses only the contract, `wit/`. The capabilities are in `memory.rs`; a host with a database would differ
//! only there.

mod memory;

/// The two functions, generated from the contract. `query` imports everything provided here, `heartbeat` less.
mod functions {
    #![allow(missing_docs, unreachable_pub, reason = "generated from wit/, where every item is documented")]
    pub mod query {
        wasmtime::component::bindgen!({ path: "../../wit", world: "query-function", additional_derives: [PartialEq] });
    }
    pub mod heartbeat {
        wasmtime::component::bindgen!({
            path: "../../wit",
            world: "heartbeat-function",
            with: { "rollcall:presence": super::query::rollcall::presence },
            require_store_data_send: true,
        });
    }
}

use anyhow::{Context, Result};
use functions::heartbeat::HeartbeatFunction;
use functions::query::QueryFunction;
use functions::query::rollcall::presence::types::{BeatDetails, Beats, Departure, DepartureReason, DeviceKind, Ids};
use memory::{Memory, word};
use wasmtime::component::{Accessor, Component, HasSelf, Linker};
use wasmtime::{Engine, Store};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut files = std::env::args_os().skip(1);
    let mut file = || files.next().context("usage: embed heartbeat.wasm query.wasm");
    let engine = Engine::default();
    let (heartbeat, query) = (Component::from_file(&engine, file()?)?, Component::from_file(&engine, file()?)?);
    let mut linker = Linker::new(&engine);
    QueryFunction::add_to_linker::<_, HasSelf<Memory>>(&mut linker, |memory| memory)?;
    // Both instances share one store. A host that must survive a trap gives each instance its own.
    let mut store = Store::new(&engine, Memory::default());
    let heartbeat = HeartbeatFunction::instantiate_async(&mut store, &heartbeat, &linker).await?;
    let query = QueryFunction::instantiate_async(&mut store, &query, &linker).await?;
    store.run_concurrent(async |instances| scenario(instances, &heartbeat, &query).await).await?
}

/// Bob sends two beats and leaves; alice queries before and after.
async fn scenario(instances: &Accessor<Memory>, heartbeat: &HeartbeatFunction, query: &QueryFunction) -> Result<()> {
    let heartbeat = heartbeat.rollcall_presence_heartbeat();
    let packed = |id: &str| Ids { text: id.to_owned(), lengths: vec![id.len() as u8] };
    for _ in 0..2 {
        let details = vec![BeatDetails { kind: DeviceKind::Desktop, active: true }];
        let beats = Beats { users: packed("bob"), devices: packed("laptop"), details };
        for standing in heartbeat.call_beat_many(instances, beats).await?? {
            println!("bob beats, and should again in {} s", standing?.next_beat_ms / 1000);
        }
    }
    look(instances, query).await?;
    let departure = Departure { user: "bob".to_owned(), device: "laptop".to_owned(), reason: DepartureReason::Logout };
    for standing in heartbeat.call_leave_many(instances, vec![departure]).await?? {
        println!("bob leaves, and is {}", word(standing?.state));
    }
    look(instances, query).await
}

async fn look(instances: &Accessor<Memory>, query: &QueryFunction) -> Result<()> {
    let (viewer, users) = (Some("alice".to_owned()), Ids { text: "bobeve".to_owned(), lengths: vec![3, 3] });
    let presences = query.rollcall_presence_query().call_look_up(instances, viewer, users).await??;
    for (user, shown) in ["bob", "eve"].into_iter().zip(presences.states) {
        let Some(shown) = shown else { continue };
        let seen = shown.last_seen.map_or("never seen".to_owned(), |at| format!("last seen at {at}"));
        println!("alice looks: {user} is {}, {seen}", word(shown.state));
    }
    Ok(())
}
