//! The OpenAPI document, written by hand in `openapi.json`. Tests compare it with the routes, the limits and the responses.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use crate::problem::Reply;

/// The document as served.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// The response to `/openapi.json`. It changes only with the binary, so it may be cached for an hour.
pub fn openapi() -> Reply {
    let mut reply = Response::new(OPENAPI.as_bytes().to_vec());
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    reply
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]
mod tests {
    use std::collections::BTreeSet;

    use rollcall_core::policy::{MAX_LISTED, MAX_SUBJECTS, PolicyChange, Privacy, Verdict};
    use rollcall_core::{
        Choice, ConversationId, Device, DeviceId, DeviceKind, Error, Moment, Note, Published, Session, Span, Stance,
        State, Time, UserId,
    };
    use serde_json::Value;

    use super::*;
    use crate::call::{
        Beat, Beats, Call, ChoiceResult, Form, List, LookUp, PolicyChanges, Settled, Standing, TypingUpdate, View,
    };
    use crate::events::{self, Close};
    use crate::problem::Problem;
    use crate::{
        Authentication, Body, Caller, Conversations, Limits, MAX_CHANGES, MAX_MESSAGE_BYTES, MAX_SWEEP, Query, ROUTES,
        Route, Scopes, decode, responses, socket,
    };

    fn document() -> Value {
        serde_json::from_str(OPENAPI).unwrap()
    }

    fn keys(object: &Value) -> BTreeSet<String> {
        object.as_object().unwrap().keys().cloned().collect()
    }

    fn body(reply: &Reply) -> Value {
        serde_json::from_slice(reply.body()).unwrap()
    }

    /// Asserts that the response has exactly the members of the schema.
    #[track_caller]
    fn fits(schema: &str, answer: &Value) {
        let document = document();
        assert_eq!(keys(&document["components"]["schemas"][schema]["properties"]), keys(answer), "{schema}");
    }

    #[test]
    fn document_describes_exactly_the_routes() {
        let routes: BTreeSet<(String, String)> = ROUTES
            .iter()
            .map(|entry| (entry.template.to_owned(), entry.method.as_str().to_ascii_lowercase()))
            .collect();
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> =
            paths.iter().flat_map(|(path, item)| keys(item).into_iter().map(|method| (path.clone(), method))).collect();
        assert_eq!(routes, described);
    }

    #[test]
    fn document_describes_bodies_and_query_keys() {
        let document = document();
        for entry in &ROUTES {
            let Route::Operation(operation) = entry.route else { continue };
            let described = &document["paths"][entry.template][entry.method.as_str().to_ascii_lowercase()];
            let takes_body = operation.body_limit(&Limits::default()) > 0;
            assert_eq!(described.get("requestBody").is_some(), takes_body, "{}", entry.template);
            for status in ["413", "415"] {
                assert_eq!(described["responses"].get(status).is_some(), takes_body, "{}", entry.template);
            }
            let query: Vec<&str> = described["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(query, operation.query_keys(), "{}", entry.template);
        }
    }

    #[test]
    fn references_resolve_and_every_component_is_used() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(object) => {
                    if let Some(Value::String(reference)) = object.get("$ref") {
                        found.insert(reference.clone());
                    }
                    object.values().for_each(|value| references(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let mut parts = BTreeSet::new();
        for section in ["schemas", "responses", "parameters"] {
            let names = keys(&document["components"][section]);
            parts.extend(names.into_iter().map(|name| format!("#/components/{section}/{name}")));
        }
        assert_eq!(found, parts);
    }

    #[test]
    fn responses_match_their_schemas() {
        let user = UserId::parse("bob").unwrap();
        let standing = Standing { state: State::Online, version: 1, next_beat_ms: 1 };
        fits("Standing", &body(&responses::heartbeat(&user, &standing)));
        fits("Left", &body(&responses::leave(&user, &standing)));
        fits("Settled", &body(&responses::sweep(&Settled::default())));

        let note = Note { text: "x".into(), emoji: String::new(), until: None };
        let choice = Choice { stance: Stance::Busy, at: Time(1), until: None, note: Some(note.clone()) };
        let status = body(&responses::status(&user, &ChoiceResult { standing, choice: choice.clone() }));
        fits("Status", &status);
        fits("Note", &status["note"]);

        let published = Published { state: State::Busy, note: Some(note), since: None, last_seen: None, version: 1 };
        let view = View { published, choice: Some(choice) };
        let users = vec![user.clone(), user.clone()];
        let look_up = LookUp { viewer: None, users, form: Form::List };
        let list = body(&responses::look_up(&look_up, &[Ok(Some(view)), Err(Error::Denied)]));
        fits("Presences", &list);
        fits("Presence", &list["presences"][0]);
        fits("Choice", &list["presences"][0]["choice"]);
        fits("Failed", &list["presences"][1]);

        let device = DeviceId::parse("d").unwrap();
        let beat = Beat { user: user.clone(), device, kind: DeviceKind::Web, active: true };
        let beats = Beats { good: vec![beat], refused: Vec::new() };
        fits("Outcomes", &body(&responses::heartbeats(&beats, &[Ok(standing)])));

        let conversation = ConversationId::parse("c").unwrap();
        let typists = body(&responses::typists(&conversation, [(&user, Time(1))]));
        fits("Typists", &typists);
        fits("Typist", &typists["typists"][0]);
        let typing_update = TypingUpdate { user, conversation, typing: true };
        fits("Typing", &body(&responses::typing(&typing_update, Span(5000))));

        let problem = Problem { limit: Some(1), retry_after_s: Some(1), ..Problem::invalid("a", "b") };
        let mut problem = body(&problem.into_reply());
        assert!(problem.as_object_mut().unwrap().remove("type").is_some());
        fits("Error", &problem);
    }

    #[test]
    fn policy_responses_match_their_schemas() {
        let (bob, eve) = (UserId::parse("bob").unwrap(), UserId::parse("eve").unwrap());
        fits("Privacy", &body(&responses::privacy(&bob, Privacy::default())));
        fits("Contacts", &body(&responses::listed(&bob, List::Contacts, std::slice::from_ref(&eve))));
        fits("Blocks", &body(&responses::listed(&bob, List::Blocks, &[])));
        fits("Contact", &body(&responses::list(&bob, &eve, List::Contacts, true)));
        fits("Block", &body(&responses::list(&bob, &eve, List::Blocks, true)));
        fits("Restriction", &body(&responses::restriction(&bob, true)));
        fits("Verdicts", &body(&responses::check(&[Verdict::OPEN])));
        let good = vec![PolicyChange::Restrict(bob), PolicyChange::Restrict(eve)];
        let changes = PolicyChanges { good, refused: Vec::new() };
        let changed = body(&responses::changes(&changes, &[Ok(()), Err(Error::TooMany(1))]));
        fits("Changed", &changed);
        fits("Made", &changed["outcomes"][0]);
        fits("NotMade", &changed["outcomes"][1]);
    }

    #[test]
    fn admin_responses_match_their_schemas() {
        let stats = body(&responses::stats(&responses::Stats::default()));
        fits("Stats", &stats);
        fits("Histogram", &stats["times"]["request"]);
        let described = &document()["components"]["schemas"]["Stats"]["properties"];
        for part in ["host", "rules", "store", "users", "connections", "totals", "times"] {
            assert_eq!(keys(&described[part]["properties"]), keys(&stats[part]), "{part}");
        }
        let transitions = &described["totals"]["properties"]["transitions"]["properties"];
        assert_eq!(keys(transitions), keys(&stats["totals"]["transitions"]));

        let (id, kind, at) = (DeviceId::parse("web-1").unwrap(), DeviceKind::Web, Time(1));
        let device = Device { id, kind, beat_at: at, active_at: None, expires_at: Time(2) };
        let state = State::Online;
        let published = Published { state, note: None, since: None, last_seen: None, version: 1 };
        let session = Session { devices: vec![device], published: Some(published), ..Session::default() };
        let person = body(&responses::person(&responses::Person {
            user: &UserId::parse("bob").unwrap(),
            moment: &Moment::at(at),
            session: &session,
            state,
            archived: None,
            privacy: Some(Privacy::default()),
            restricted: false,
            contacts: Some(0),
            blocks: Some(0),
            watchers: responses::Watchers::default(),
        }));
        fits("Person", &person);
        fits("Record", &person["record"]);
        fits("Device", &person["devices"][0]);
        let described = &document()["components"]["schemas"]["Person"]["properties"];
        for part in ["privacy", "watchers"] {
            assert_eq!(keys(&described[part]["properties"]), keys(&person[part]), "{part}");
        }
    }

    #[test]
    fn documented_limits_match_the_code() {
        let schemas = &document()["components"]["schemas"];
        let limits = Limits::default();
        assert_eq!(schemas["Ids"]["maxItems"], limits.query_ids);
        assert_eq!(schemas["Id"]["maxLength"], rollcall_core::MAX_ID_BYTES);
        assert_eq!(schemas["Heartbeats"]["properties"]["beats"]["maxItems"], limits.batch_beats);
        assert_eq!(schemas["Sweep"]["properties"]["limit"]["maximum"], MAX_SWEEP);
        assert_eq!(schemas["Check"]["properties"]["subjects"]["maxItems"], MAX_SUBJECTS);
        assert_eq!(schemas["Changes"]["properties"]["changes"]["maxItems"], MAX_CHANGES);
        for (schema, list) in [("Contacts", "contacts"), ("Blocks", "blocks")] {
            assert_eq!(schemas[schema]["properties"][list]["maxItems"], MAX_LISTED);
        }
        let too_large = document()["components"]["responses"]["TooLarge"]["description"].clone();
        let (lists, others) = (limits.batch_body_bytes / 1024 / 1024, limits.body_bytes / 1024);
        assert!(too_large.as_str().unwrap().contains(&format!("{lists} MiB for lists, {others} KiB otherwise")));
        let status = &schemas["PutStatus"]["properties"];
        assert_eq!(status["text"]["maxLength"], rollcall_core::choose::MAX_NOTE_BYTES);
        assert_eq!(status["emoji"]["maxLength"], rollcall_core::choose::MAX_EMOJI_BYTES);
        assert_eq!(status["for_s"]["maximum"], rollcall_core::choose::MAX_FOR_S);
    }

    #[test]
    fn documented_id_pattern_matches_the_rule() {
        let schema = document()["components"]["schemas"]["Id"].clone();
        let (min, max) = (schema["minLength"].as_u64().unwrap(), schema["maxLength"].as_u64().unwrap());
        let is_id = |text: &str| UserId::parse(text).is_ok();
        let repeated = |count: u64| "x".repeat(usize::try_from(count).unwrap());
        assert!(!is_id(&repeated(min - 1)) && is_id(&repeated(min)), "minLength");
        assert!(is_id(&repeated(max)) && !is_id(&repeated(max + 1)), "maxLength");
        assert!(!is_id(&"é".repeat(65)), "130 bytes in 65 characters");
        assert!(schema["description"].as_str().unwrap().contains("128 bytes of UTF-8"));

        let excluded = schema["pattern"].as_str().unwrap().strip_prefix("^[^").unwrap().strip_suffix("]*$").unwrap();
        let bounds: Vec<u32> = excluded
            .split("\\u")
            .skip(1)
            .map(|hex| u32::from_str_radix(hex.trim_end_matches('-'), 16).unwrap())
            .collect();
        let fits_pattern = |c: char| !bounds.chunks(2).any(|range| (range[0]..=range[1]).contains(&u32::from(c)));
        for c in char::MIN..=char::MAX {
            assert_eq!(fits_pattern(c), is_id(c.encode_utf8(&mut [0; 4])), "{c:?}");
        }
    }

    #[test]
    fn documented_media_types_match_the_responses() {
        let document = document();
        for (path, reply) in [
            ("/healthz", crate::pages::healthz()),
            ("/readyz", crate::pages::readyz()),
            ("/metrics", crate::pages::metrics("")),
            ("/openapi.json", openapi()),
        ] {
            let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
            assert_eq!(keys(content), [reply.headers()[CONTENT_TYPE].to_str().unwrap().to_owned()].into(), "{path}");
        }
    }

    fn unverified(name: &str) -> Caller {
        let user = UserId::parse(name).unwrap();
        let conversations = Conversations::Any;
        Caller {
            user,
            scopes: Scopes::ALL,
            authentication: Authentication::Unverified,
            conversations,
            expires_at: None,
        }
    }

    /// The JSON in backquotes at the start of each list item of a description.
    fn quoted(description: &Value) -> Vec<String> {
        let lines = description.as_str().unwrap().lines();
        lines
            .filter_map(|line| Some(line.strip_prefix("- `{")?.split_once("}`")?.0))
            .map(|inner| format!("{{{inner}}}"))
            .collect()
    }

    #[test]
    fn documented_socket_messages_decode() {
        let document = document();
        let messages = quoted(&document["paths"]["/v1/socket"]["get"]["description"]);
        assert_eq!(messages.len(), 6);
        for message in messages {
            assert!(socket::decode_message(&message, &unverified("bob"), &Limits::default()).is_ok(), "{message}");
        }
    }

    #[test]
    fn every_event_close_and_problem_is_documented() {
        let document = document();
        let streamed = document["paths"]["/v1/subscribe"]["get"]["responses"]["200"]["description"].as_str().unwrap();
        let pushed = document["paths"]["/v1/socket"]["get"]["responses"]["101"]["description"].as_str().unwrap();
        for event in [events::SNAPSHOT, events::PRESENCE, events::TYPING, events::ERROR, events::RECONNECT] {
            assert!(streamed.contains(&format!("`{event}`")) && pushed.contains(&format!("`{event}`")), "{event}");
        }
        assert!(pushed.contains(&format!("`{}`", events::DONE)) && streamed.contains(&format!("`{}`", events::CLOSE)));
        for close in Close::ALL {
            assert!(pushed.contains(&format!("`{}`", close.code())), "{close:?}");
        }
        let described = document["paths"]["/v1/socket"]["get"]["description"].as_str().unwrap();
        assert!(described.contains(&format!("{} KiB", MAX_MESSAGE_BYTES / 1024)));
        let problems = &document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"];
        assert!(problems.as_array().unwrap().contains(&crate::Kind::UpgradeRequired.urn().into()));
    }

    #[test]
    fn examples_are_accepted() {
        let document = document();
        let caller = unverified("bob");
        for entry in &ROUTES {
            let Route::Operation(operation) = entry.route.with_part("c1") else { continue };
            let described = &document["paths"][entry.template][entry.method.as_str().to_ascii_lowercase()];
            let example = &described["requestBody"]["content"]["application/json"]["example"];
            if !example.is_null() {
                let bytes = example.to_string();
                let body = Body { bytes: bytes.as_bytes(), ..Body::default() };
                let call = decode(operation, &Query::default(), &caller, body, &Limits::default());
                assert!(call.is_ok(), "{}: {call:?}", entry.template);
                if let Ok(Call::Changes(changes)) = call {
                    assert_eq!(
                        (changes.good.len(), changes.refused),
                        (7, Vec::new()),
                        "one change of each kind, all valid"
                    );
                }
            }
        }
    }

    #[test]
    fn examples_match_their_schemas() {
        let document = document();
        let mut examples = 0;
        for entry in &ROUTES {
            let described = &document["paths"][entry.template][entry.method.as_str().to_ascii_lowercase()];
            let answer = &described["responses"]["200"]["content"]["application/json"];
            let Some(example) = answer.get("example") else { continue };
            fits(answer["schema"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap(), example);
            examples += 1;
        }
        assert_eq!(examples, 15, "every policy and admin path has an example response");
    }
}
