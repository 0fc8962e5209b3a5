//! Compares the rights of a fleet's roles with those that `fleet init` grants.
//!
//! It creates tables and groups again in a transaction that is rolled back, and reads the rights from
//! there. So it needs no list of rights.

use std::collections::{BTreeMap, BTreeSet};

use super::init::{RoleGroup, literal, names};
use super::{FleetDatabase, TABLES};
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::fleet::FleetError;
use crate::inventory::schema_of_server;

/// Every fact about roles and tables.
const FACTS: &str = include_str!("borders.sql");

/// Facts of one role that a message names.
const NAMED: usize = 6;

/// The members of groups, except the owner of the tables, who may do everything.
const MEMBERS: &str = "WITH RECURSIVE members (member) AS (
       SELECT m.member FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE g.rolname = ANY(?1::text[])
       UNION SELECT m.member FROM pg_auth_members m JOIN members ON m.roleid = members.member)
     SELECT r.rolname::text FROM members JOIN pg_roles r ON r.oid = member WHERE r.rolname <> ALL(?1::text[])
       AND r.oid <> (SELECT nspowner FROM pg_namespace WHERE nspname = 'bannerwall') ORDER BY 1";

/// True if this role can create roles and tables, and replace the fleet's schema.
const MAY_MAKE: &str = "SELECT pg_has_role(current_user, nspowner, 'USAGE')
       AND has_database_privilege(current_database(), 'CREATE')
       AND (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user)
     FROM pg_namespace WHERE nspname = 'bannerwall'";

/// One check of a fleet's rights.
#[derive(Debug)]
pub struct BorderCheck {
    /// Its name.
    pub name: &'static str,
    /// The fact that holds if there are no findings.
    pub sound: &'static str,
    /// The findings, or the reason why they are unknown.
    pub found: Result<Vec<String>, String>,
}

/// The facts, by the label of a role.
type RoleFacts = BTreeMap<String, BTreeSet<String>>;

impl FleetDatabase {
    /// Compares the rights of the fleet's roles with those that they should have.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn check_borders(&self) -> Result<Vec<BorderCheck>, FleetError> {
        let link = self.beside.link();
        let checked = link.batch("BEGIN; SET LOCAL lock_timeout = '10s'").and_then(|()| check(link));
        let rolled_back = link.batch("ROLLBACK");
        checked.and_then(|checks| rolled_back.map(|()| checks)).map_err(|error| self.fault(error))
    }
}

fn check(link: &DatabaseConnection) -> Result<Vec<BorderCheck>, DatabaseError> {
    let groups = names(link)?;
    let group_names = || groups.iter().map(String::as_str).collect();
    let members = link.all(MEMBERS, &[group_names()], |row| row.get::<String>(0))?;
    let labelled = RoleGroup::ALL.map(label).into_iter().zip(groups.iter().cloned());
    let real = facts(link, labelled.chain(members.iter().map(|name| (name.clone(), name.clone()))))?;
    let may_make = link.one(MAY_MAKE, values![], |row| row.get::<bool>(0))? == Some(true);
    let members = members.iter().flat_map(|member| beyond_groups(&real, &groups, member)).collect();
    let of_public = told("PUBLIC", "", of(&real, "PUBLIC"), "REVOKE it");
    let owner = of(&real, "owner");
    let (groups, tables) = if may_make {
        let meant = reference(link)?;
        let groups = RoleGroup::ALL.iter().flat_map(|group| difference(&real, &meant, &label(*group)));
        (Ok(groups.collect()), Ok(difference(&real, &meant, "tables")))
    } else {
        let why = "this role does not own the tables, or cannot create roles: run it as a superuser";
        (Err(why.to_owned()), Err(why.to_owned()))
    };
    let check = |name, sound, found| BorderCheck { name, sound, found };
    Ok(vec![
        check("groups", "each has exactly its intended rights", groups),
        check("tables", "row security, policies, triggers and functions are those of this version", tables),
        check("members", "none has more rights than its groups", Ok(members)),
        check("public", "has no right to connect, nor any other", Ok(of_public)),
        check("sessions", "sessions that block others can be ended", Ok(owner.into_iter().collect())),
    ])
}

fn label(group: RoleGroup) -> String {
    format!("group {}", group.word())
}

fn of(facts: &RoleFacts, label: &str) -> BTreeSet<String> {
    facts.get(label).cloned().unwrap_or_default()
}

fn facts(
    link: &DatabaseConnection,
    roles: impl Iterator<Item = (String, String)>,
) -> Result<RoleFacts, DatabaseError> {
    let (labels, names): (Vec<String>, Vec<String>) = roles.unzip();
    let (labels, names) = (labels.iter().map(String::as_str), names.iter().map(String::as_str));
    let mut facts = RoleFacts::new();
    let rows = link.all(FACTS, &[labels.collect(), names.collect()], |row| {
        Ok((row.get::<String>(0)?, row.get::<String>(1)?))
    })?;
    for (label, fact) in rows {
        facts.entry(label).or_default().insert(fact);
    }
    Ok(facts)
}

/// Returns the facts about tables and groups that are created now.
fn reference(link: &DatabaseConnection) -> Result<RoleFacts, DatabaseError> {
    link.batch("ALTER SCHEMA bannerwall RENAME TO bannerwall_before")?;
    link.batch(&(schema_of_server() + &TABLES.concat()))?;
    let name = |group: RoleGroup| format!("bannerwall_reference_{}", group.word());
    for group in RoleGroup::ALL {
        link.batch(&format!("CREATE ROLE {}", name(group)))?;
        link.batch(&group.rights(&literal(&name(group))))?;
    }
    facts(link, RoleGroup::ALL.into_iter().map(|group| (label(group), name(group))))
}

/// Returns the facts that should not be, and those that are missing.
fn difference(real: &RoleFacts, meant: &RoleFacts, label: &str) -> Vec<String> {
    let (is, is_to_be) = (of(real, label), of(meant, label));
    let excess = is.difference(&is_to_be).cloned().collect();
    let lacking =
        is_to_be.difference(&is).filter(|fact| !of(real, "PUBLIC").contains(*fact)).cloned().collect();
    let mut lines =
        told(label, "", excess, "remove it (REVOKE, DROP, ALTER), unless a newer bannerwall created it");
    lines.extend(told(
        label,
        "lacks: ",
        lacking,
        "`bannerwall fleet init` grants rights; restore the rest from a backup",
    ));
    lines
}

/// Returns the rights of a member that its groups do not have, and those that it lacks.
fn beyond_groups(real: &RoleFacts, groups: &[String; 5], member: &str) -> Vec<String> {
    let is = of(real, member);
    if is.contains("has the attribute SUPERUSER") {
        return vec![format!("{member} is a superuser, without any limit: ALTER ROLE … NOSUPERUSER")];
    }
    let own = RoleGroup::ALL.into_iter().zip(groups).filter(|(_, name)| is.contains(&membership(name)));
    let own: Vec<(RoleGroup, &String)> = own.collect();
    let is_to_be: BTreeSet<String> = own
        .iter()
        .flat_map(|(group, name)| of(real, &label(*group)).into_iter().chain([membership(name)]))
        .collect();
    let excess = is.difference(&is_to_be).cloned().collect();
    let lacking = is_to_be.difference(&is).cloned().collect();
    let mut lines = told(
        member,
        "",
        excess,
        "remove or grant it (REVOKE, ALTER ROLE; `bannerwall fleet init` sets limits)",
    );
    lines.extend(told(
        member,
        "lacks: ",
        lacking,
        "let it inherit the rights of its group (ALTER ROLE … INHERIT)",
    ));
    if own.len() > 1 && own.iter().any(|(group, _)| *group == RoleGroup::Sensor) {
        lines.push(format!("{member} is a sensor and something else: use separate roles"));
    }
    lines
}

fn membership(group: &str) -> String {
    format!("is a member of {group}")
}

/// Returns a line about a role, if there are findings.
fn told(label: &str, lacks: &str, facts: BTreeSet<String>, advice: &str) -> Vec<String> {
    if facts.is_empty() {
        return Vec::new();
    }
    let more = facts.len().saturating_sub(NAMED);
    let named: Vec<String> = facts.into_iter().take(NAMED).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    vec![format!("{label} {lacks}{}{more}: {advice}", named.join(", "))]
}
