//! Budgets of compiled schemas: how much memory the schemas of one document, source or publisher may take, and how much
//! fuel it takes to compile them. Compiling ends as soon as it exceeds a budget.

use json_schema::CompileError;
use parking_lot::Mutex;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

/// SHA-256 of a schema's text.
pub type SchemaDigest = [u8; 32];

/// Maximum memory of compiled schemas in bytes, and maximum fuel of compiling them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Memory of one document.
    pub per_document: u64,
    /// Memory of all documents of one source.
    pub per_source: u64,
    /// Memory of all documents of one publisher.
    pub per_publisher: u64,
    /// Fuel of one document.
    pub fuel_per_document: u64,
    /// Fuel of all documents of one publisher.
    pub fuel_per_publisher: u64,
}

impl SchemaLimits {
    /// Limits that nothing exceeds.
    pub const UNLIMITED: Self = Self {
        per_document: u64::MAX,
        per_source: u64::MAX,
        per_publisher: u64::MAX,
        fuel_per_document: u64::MAX,
        fuel_per_publisher: u64::MAX,
    };
}

/// Memory in bytes, and fuel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileCost {
    /// Memory in bytes.
    pub bytes: u64,
    /// Fuel of compiling.
    pub fuel: u64,
}

impl CompileCost {
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), fuel: self.fuel.saturating_add(other.fuel) }
    }

    fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), fuel: self.fuel.saturating_sub(other.fuel) }
    }

    fn min(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), fuel: self.fuel.min(other.fuel) }
    }
}

/// One schema that a document has, the memory of its compiled form, and the fuel of compiling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaCharge {
    digest: SchemaDigest,
    cost: CompileCost,
}

impl SchemaCharge {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.cost.bytes
    }
}

/// The maximum of one owner of schemas, and its words.
#[derive(Clone, Copy, Debug)]
struct OwnerLimit {
    owner: &'static str,
    max: CompileCost,
    size_setting: &'static str,
    fuel_setting: &'static str,
}

impl OwnerLimit {
    fn of_document(limits: SchemaLimits) -> Self {
        Self {
            owner: "document",
            max: CompileCost { bytes: limits.per_document, fuel: limits.fuel_per_document },
            size_setting: "contract.max_compiled_size",
            fuel_setting: "contract.max_compile_fuel",
        }
    }

    /// Returns why a schema does not fit, if it has this cost beside what is charged already.
    fn check(&self, charged: CompileCost, cost: CompileCost) -> Result<(), String> {
        let sum = charged.plus(cost);
        if sum.bytes > self.max.bytes {
            return Err(self.size_problem());
        }
        if sum.fuel > self.max.fuel { Err(self.fuel_problem()) } else { Ok(()) }
    }

    fn size_problem(&self) -> String {
        format!(
            "with this schema, the compiled schemas of the {} take more than {} KiB ({})",
            self.owner,
            self.max.bytes >> 10,
            self.size_setting
        )
    }

    fn fuel_problem(&self) -> String {
        format!(
            "with this schema, compiling the schemas of the {} takes more than {} units of fuel ({})",
            self.owner, self.max.fuel, self.fuel_setting
        )
    }
}

/// What the compiled schemas of one owner take. Equal schemas are shared, so an owner pays once for each.
#[derive(Debug)]
pub struct SchemaBudget {
    limit: OwnerLimit,
    charged: Mutex<ChargedSchemas>,
}

#[derive(Debug, Default)]
struct ChargedSchemas {
    schemas: HashMap<SchemaDigest, CompileCost>,
    sum: CompileCost,
}

impl SchemaBudget {
    /// Creates the budget of a source.
    pub fn of_source(limits: SchemaLimits) -> Self {
        Self::new(OwnerLimit {
            owner: "source",
            max: CompileCost { bytes: limits.per_source, fuel: u64::MAX },
            size_setting: "contract.max_compiled_size_per_source",
            fuel_setting: "contract.max_compile_fuel",
        })
    }

    /// Creates the budget of a publisher.
    pub fn of_publisher(limits: SchemaLimits) -> Self {
        Self::new(OwnerLimit {
            owner: "publisher",
            max: CompileCost { bytes: limits.per_publisher, fuel: limits.fuel_per_publisher },
            size_setting: "contract.max_compiled_size_per_publisher",
            fuel_setting: "contract.max_compile_fuel_per_publisher",
        })
    }

    fn new(limit: OwnerLimit) -> Self {
        Self { limit, charged: Mutex::default() }
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
        self.limit.check(charged.sum, charge.cost)?;
        charged.add(charge);
        Ok(())
    }

    fn room(&self) -> CompileCost {
        self.limit.max.minus(self.charged.lock().sum)
    }
}

impl ChargedSchemas {
    fn add(&mut self, charge: SchemaCharge) {
        if self.schemas.insert(charge.digest, charge.cost).is_none() {
            self.sum = self.sum.plus(charge.cost);
        }
    }
}

/// The budgets that the schemas of one document are charged to. A document is compiled by one thread.
#[derive(Debug)]
pub struct DocumentBudget<'a> {
    limit: OwnerLimit,
    owners: &'a [&'a SchemaBudget],
    charges: RefCell<Vec<SchemaCharge>>,
    exceeded_owner: Cell<bool>,
}

impl<'a> DocumentBudget<'a> {
    /// Creates the budget of a document that is charged to all `owners`, too.
    pub fn new(limits: SchemaLimits, owners: &'a [&'a SchemaBudget]) -> Self {
        let limit = OwnerLimit::of_document(limits);
        Self { limit, owners, charges: RefCell::default(), exceeded_owner: Cell::new(false) }
    }

    /// Creates a budget that nothing exceeds, for the gateway's own schemas.
    pub fn unlimited() -> Self {
        Self::new(SchemaLimits::UNLIMITED, &[])
    }

    fn charged(&self) -> CompileCost {
        self.charges.borrow().iter().fold(CompileCost::default(), |sum, charge| sum.plus(charge.cost))
    }

    /// Returns what the next schema may take.
    pub(super) fn room(&self) -> CompileCost {
        let own = self.limit.max.minus(self.charged());
        self.owners.iter().fold(own, |room, owner| room.min(owner.room()))
    }

    /// Returns why a schema is refused that took all the room there was.
    pub(super) fn exceeded_problem(&self, error: &CompileError) -> Option<String> {
        let of_size = match error {
            CompileError::OutOfMemory => true,
            CompileError::OutOfFuel => false,
            _ => return None,
        };
        let measure = |room: CompileCost| if of_size { room.bytes } else { room.fuel };
        let own = measure(self.limit.max.minus(self.charged()));
        let owner = self.owners.iter().min_by_key(|owner| measure(owner.room()));
        let owner = owner.filter(|owner| measure(owner.room()) < own);
        self.exceeded_owner.set(self.exceeded_owner.get() || owner.is_some());
        let limit = owner.map_or(&self.limit, |owner| &owner.limit);
        Some(if of_size { limit.size_problem() } else { limit.fuel_problem() })
    }

    /// Charges a schema.
    ///
    /// # Errors
    /// The budget that is exceeded.
    pub(super) fn charge(&self, digest: SchemaDigest, cost: CompileCost) -> Result<(), String> {
        if self.charges.borrow().iter().any(|charged| charged.digest == digest) {
            return Ok(());
        }
        self.limit.check(self.charged(), cost)?;
        let charge = SchemaCharge { digest, cost };
        for owner in self.owners {
            owner.charge(charge).inspect_err(|_| self.exceeded_owner.set(true))?;
        }
        self.charges.borrow_mut().push(charge);
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
