//! What people wish others to see of them, and whom an administrator restricts, as a client asks for it. Each is answered
//! when it is in force on the host that was asked.

use serde_json::{Value, json};

use crate::{Answer, Client};

impl Client {
    /// Blocks somebody.
    pub fn block(&self, other: &str) {
        taken(&self.send("PUT", &format!("/v1/blocks/{other}"), None));
    }

    /// Takes that back.
    pub fn unblock(&self, other: &str) {
        taken(&self.send("DELETE", &format!("/v1/blocks/{other}"), None));
    }

    /// Lists somebody as a contact.
    pub fn add_contact(&self, other: &str) {
        taken(&self.send("PUT", &format!("/v1/contacts/{other}"), None));
    }

    /// Takes that back.
    pub fn remove_contact(&self, other: &str) {
        taken(&self.send("DELETE", &format!("/v1/contacts/{other}"), None));
    }

    /// Sets who may see the state, and who when this person was last here.
    pub fn set_privacy(&self, presence: &str, last_seen: &str) {
        taken(&self.put("/v1/privacy", json!({ "presence": presence, "last_seen": last_seen })));
    }

    /// Restricts an account, as an administrator.
    pub fn restrict(&self, user: &str) {
        taken(&self.send("PUT", &format!("/v1/restrictions/{user}"), None));
    }

    /// Lifts a restriction, as an administrator.
    pub fn unrestrict(&self, user: &str) {
        taken(&self.send("DELETE", &format!("/v1/restrictions/{user}"), None));
    }

    /// Whether an account is restricted, as an administrator is told.
    pub fn is_restricted(&self, user: &str) -> bool {
        let answer = self.get(&format!("/v1/restrictions/{user}"));
        taken(&answer);
        answer.json["restricted"].as_bool().expect("yes or no")
    }

    /// What a viewer may see of somebody, and why not: `allowed`, `blocked`, …
    pub fn ruling(&self, viewer: &str, subject: &str) -> String {
        let answer = self.post("/v1/restrictions/check", json!({ "viewer": viewer, "subjects": [subject] }));
        taken(&answer);
        answer.json["verdicts"][0].as_str().expect("a verdict").to_owned()
    }

    /// Makes changes, all of which are taken.
    pub fn change(&self, changes: &[Value]) {
        let answer = self.post("/v1/policy", json!({ "changes": changes }));
        taken(&answer);
        let outcomes = answer.json["outcomes"].as_array().expect("outcomes");
        assert!(outcomes.iter().all(|outcome| outcome["ok"] == true), "{}", answer.text);
        assert_eq!(outcomes.len(), changes.len());
    }
}

fn taken(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", answer.text);
}
