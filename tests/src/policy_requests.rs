//! Policy requests of a client: blocks, contacts, privacy and restrictions. Each is answered once it is in force on the host that
//! was asked.

use serde_json::{Value, json};

use crate::{Answer, Client};

impl Client {
    /// Blocks a user.
    pub fn block(&self, other: &str) {
        accepted(&self.send("PUT", &format!("/v1/blocks/{other}"), None));
    }

    /// Lifts a block.
    pub fn unblock(&self, other: &str) {
        accepted(&self.send("DELETE", &format!("/v1/blocks/{other}"), None));
    }

    /// Adds a contact.
    pub fn add_contact(&self, other: &str) {
        accepted(&self.send("PUT", &format!("/v1/contacts/{other}"), None));
    }

    /// Removes a contact.
    pub fn remove_contact(&self, other: &str) {
        accepted(&self.send("DELETE", &format!("/v1/contacts/{other}"), None));
    }

    /// Sets the audiences of presence and last seen.
    pub fn set_privacy(&self, presence: &str, last_seen: &str) {
        accepted(&self.put("/v1/privacy", json!({ "presence": presence, "last_seen": last_seen })));
    }

    /// Restricts an account, as an administrator.
    pub fn restrict(&self, user: &str) {
        accepted(&self.send("PUT", &format!("/v1/restrictions/{user}"), None));
    }

    /// Lifts a restriction, as an administrator.
    pub fn unrestrict(&self, user: &str) {
        accepted(&self.send("DELETE", &format!("/v1/restrictions/{user}"), None));
    }

    /// Whether an account is restricted, asked as an administrator.
    pub fn is_restricted(&self, user: &str) -> bool {
        let answer = self.get(&format!("/v1/restrictions/{user}"));
        accepted(&answer);
        answer.json["restricted"].as_bool().expect("yes or no")
    }

    /// The verdict about a viewer and a subject: `allowed`, `blocked`, …
    pub fn ruling(&self, viewer: &str, subject: &str) -> String {
        let answer = self.post("/v1/restrictions/check", json!({ "viewer": viewer, "subjects": [subject] }));
        accepted(&answer);
        answer.json["verdicts"][0].as_str().expect("a verdict").to_owned()
    }

    /// Makes changes; all must be accepted.
    pub fn change(&self, changes: &[Value]) {
        let answer = self.post("/v1/policy", json!({ "changes": changes }));
        accepted(&answer);
        let outcomes = answer.json["outcomes"].as_array().expect("outcomes");
        assert!(outcomes.iter().all(|outcome| outcome["ok"] == true), "{}", answer.text);
        assert_eq!(outcomes.len(), changes.len());
    }
}

fn accepted(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", answer.text);
}
