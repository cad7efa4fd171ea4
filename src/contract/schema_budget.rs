//! Budgets of compiled schemas: how much memory the schemas of one document may take, and those of one source or
//! publisher. Schemas are charged before they are compiled, so that a document which exceeds a budget costs nothing but
//! its refusal.

use parking_lot::Mutex;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

/// SHA-256 of a schema's text.
pub type SchemaDigest = [u8; 32];

/// Maximum memory of compiled schemas, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Of one document.
    pub per_document: u64,
    /// Of all documents of one source.
    pub per_source: u64,
    /// Of all documents of one publisher.
    pub per_publisher: u64,
}

impl SchemaLimits {
    /// Limits that nothing exceeds.
    pub const UNLIMITED: Self = Self { per_document: u64::MAX, per_source: u64::MAX, per_publisher: u64::MAX };
}

/// One schema that a document has, and the memory of its compiled form in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaCharge {
    digest: SchemaDigest,
    bytes: u64,
}

impl SchemaCharge {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The memory of the compiled schemas of one owner. Equal schemas are shared, so an owner pays once for each.
#[derive(Debug)]
pub struct SchemaBudget {
    owner: &'static str,
    /// The setting of the maximum.
    setting: &'static str,
    max_bytes: u64,
    charged: Mutex<ChargedSchemas>,
}

#[derive(Debug, Default)]
struct ChargedSchemas {
    schemas: HashMap<SchemaDigest, u64>,
    bytes: u64,
}

impl SchemaBudget {
    /// Creates the budget of a source.
    pub fn of_source(limits: SchemaLimits) -> Self {
        Self::new("source", "contract.max_compiled_size_per_source", limits.per_source)
    }

    /// Creates the budget of a publisher.
    pub fn of_publisher(limits: SchemaLimits) -> Self {
        Self::new("publisher", "contract.max_compiled_size_per_publisher", limits.per_publisher)
    }

    fn new(owner: &'static str, setting: &'static str, max_bytes: u64) -> Self {
        Self { owner, setting, max_bytes, charged: Mutex::default() }
    }

    /// Charges a schema that is in use, whether or not it fits.
    pub fn record(&self, charge: SchemaCharge) {
        self.charged.lock().add(charge);
    }

    /// Charges a schema.
    ///
    /// # Errors
    /// The budget is exceeded; then nothing is charged.
    fn charge(&self, charge: SchemaCharge) -> Result<(), String> {
        let mut charged = self.charged.lock();
        if charged.schemas.contains_key(&charge.digest) {
            return Ok(());
        }
        if charged.bytes.saturating_add(charge.bytes) > self.max_bytes {
            return Err(format!(
                "with this schema, the compiled schemas of the {} take more than {} KiB ({})",
                self.owner,
                self.max_bytes >> 10,
                self.setting
            ));
        }
        charged.add(charge);
        Ok(())
    }
}

impl ChargedSchemas {
    fn add(&mut self, charge: SchemaCharge) {
        if self.schemas.insert(charge.digest, charge.bytes).is_none() {
            self.bytes = self.bytes.saturating_add(charge.bytes);
        }
    }
}

/// The budgets that the schemas of one document are charged to. A document is compiled by one thread.
#[derive(Debug)]
pub struct DocumentBudget<'a> {
    max_bytes: u64,
    owners: &'a [&'a SchemaBudget],
    charges: RefCell<Vec<SchemaCharge>>,
    exceeded_owner: Cell<bool>,
}

impl<'a> DocumentBudget<'a> {
    /// Creates the budget of a document that is charged to all `owners`, too.
    pub fn new(limits: SchemaLimits, owners: &'a [&'a SchemaBudget]) -> Self {
        Self { max_bytes: limits.per_document, owners, charges: RefCell::default(), exceeded_owner: Cell::new(false) }
    }

    /// Creates a budget that nothing exceeds, for the gateway's own schemas.
    pub fn unlimited() -> Self {
        Self::new(SchemaLimits::UNLIMITED, &[])
    }

    /// Checks that a schema of at least this size may be charged.
    ///
    /// # Errors
    /// The budget of the document is exceeded.
    pub(super) fn check(&self, bytes: u64) -> Result<(), String> {
        self.check_sum(&self.charges.borrow(), bytes)
    }

    fn check_sum(&self, charges: &[SchemaCharge], bytes: u64) -> Result<(), String> {
        let sum = charges.iter().fold(bytes, |sum, charge| sum.saturating_add(charge.bytes));
        if sum <= self.max_bytes {
            return Ok(());
        }
        Err(format!(
            "with this schema, the compiled schemas of the document take more than {} KiB \
             (contract.max_compiled_size)",
            self.max_bytes >> 10
        ))
    }

    /// Charges a schema.
    ///
    /// # Errors
    /// The budget that is exceeded.
    pub(super) fn charge(&self, digest: SchemaDigest, bytes: u64) -> Result<(), String> {
        let charge = SchemaCharge { digest, bytes };
        let mut charges = self.charges.borrow_mut();
        if charges.iter().any(|charged| charged.digest == digest) {
            return Ok(());
        }
        self.check_sum(&charges, bytes)?;
        for owner in self.owners {
            owner.charge(charge).inspect_err(|_| self.exceeded_owner.set(true))?;
        }
        charges.push(charge);
        Ok(())
    }

    /// Returns whether a schema was refused because a budget of several documents is exceeded. Such a document may be
    /// valid later, when there are fewer of them.
    pub fn exceeded_owner(&self) -> bool {
        self.exceeded_owner.get()
    }

    /// Returns what the document was charged.
    pub fn into_charges(self) -> Box<[SchemaCharge]> {
        self.charges.into_inner().into()
    }
}
