//! Evaluates `JMESPath` with bounded work.
//!
//! Values are shared, so a short query can produce a tree of any size: each step of `[@,@]|[@,@]|…`
//! doubles it. Every step is therefore counted, and every new value counts as many steps as its
//! expanded tree has nodes. The same query on the same document always takes the same number of
//! steps.

use jmespath::ast::{Ast, Comparator, KeyValuePair};
use jmespath::{
    Context, DEFAULT_RUNTIME, ErrorReason, JmespathError, Rcvar, RuntimeError, Variable,
};

/// Longest query, in characters.
pub(super) const MAX_QUERY_CHARS: usize = 1_000;
/// Maximum number of steps of one query. A step visits one node of the query or of a value.
pub(super) const MAX_QUERY_STEPS: u64 = 10_000_000;
/// Bytes of text that cost one step.
const TEXT_BYTES_PER_STEP: usize = 16;
/// Cost of copying an expression (`&name`) into a value.
const EXPRESSION_STEPS: usize = MAX_QUERY_CHARS;

/// Reason for a query without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueryError {
    #[error("{0}")]
    Invalid(#[from] JmespathError),
    #[error(
        "the query takes more than {MAX_QUERY_STEPS} steps, or its result is that large; \
         ask for less at a time, and do not repeat the document within the result"
    )]
    TooMuchWork,
}

type EvalResult = Result<Rcvar, QueryError>;

/// Evaluates `expression` on `document`.
pub(super) fn search(expression: &str, document: &Rcvar) -> EvalResult {
    let ast = jmespath::parse(expression)?;
    let mut evaluation = Evaluation {
        expression,
        steps_left: MAX_QUERY_STEPS,
    };
    let found = evaluation.value(document, &ast)?;
    evaluation.weigh(&found)?;
    Ok(found)
}

struct Evaluation<'e> {
    expression: &'e str,
    steps_left: u64,
}

impl Evaluation<'_> {
    fn spend(&mut self, steps: usize) -> Result<(), QueryError> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.ok_or(QueryError::TooMuchWork)?;
        Ok(())
    }

    /// Charges the nodes of a value's expanded tree. A shared node counts once per occurrence.
    fn weigh(&mut self, value: &Variable) -> Result<(), QueryError> {
        let mut waiting = vec![value];
        while let Some(value) = waiting.pop() {
            self.spend(1)?;
            match value {
                Variable::String(text) => self.spend(text.len() / TEXT_BYTES_PER_STEP)?,
                Variable::Array(items) => {
                    self.spend(items.len())?;
                    waiting.extend(items.iter().map(AsRef::as_ref));
                }
                Variable::Object(fields) => {
                    for (name, value) in fields {
                        self.spend(1 + name.len() / TEXT_BYTES_PER_STEP)?;
                        waiting.push(value);
                    }
                }
                Variable::Expref(_) => self.spend(EXPRESSION_STEPS)?,
                Variable::Null | Variable::Bool(_) | Variable::Number(_) => {}
            }
        }
        Ok(())
    }

    /// Creates a value composed of others and charges for it.
    fn made(&mut self, value: Variable) -> EvalResult {
        self.weigh(&value)?;
        Ok(Rcvar::new(value))
    }

    fn failed(&self, offset: usize, error: RuntimeError) -> QueryError {
        JmespathError::new(self.expression, offset, ErrorReason::Runtime(error)).into()
    }

    fn value(&mut self, data: &Rcvar, node: &Ast) -> EvalResult {
        self.spend(1)?;
        match node {
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Field { name, .. } => Ok(data.get_field(name)),
            Ast::Literal { value, .. } => Ok(value.clone()),
            Ast::Index { idx, .. } => Ok(item(data, *idx)),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.value(data, lhs)?;
                self.value(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => self.either(data, lhs, rhs, true),
            Ast::And { lhs, rhs, .. } => self.either(data, lhs, rhs, false),
            Ast::Not { node, .. } => {
                let found = self.value(data, node)?;
                Ok(Rcvar::new(Variable::Bool(!found.is_truthy())))
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                if self.value(data, predicate)?.is_truthy() {
                    self.value(data, then)
                } else {
                    Ok(null())
                }
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.comparison(data, comparator, lhs, rhs),
            Ast::ObjectValues { node, .. } => self.object_values(data, node),
            Ast::Projection { lhs, rhs, .. } => self.projection(data, lhs, rhs),
            Ast::Flatten { node, .. } => self.flattened(data, node),
            Ast::MultiList { elements, .. } => self.list(data, elements),
            Ast::MultiHash { elements, .. } => self.object(data, elements),
            Ast::Function { offset, name, args } => self.function(data, *offset, name, args),
            Ast::Expref { ast, .. } => {
                self.spend(EXPRESSION_STEPS)?;
                Ok(Rcvar::new(Variable::Expref((**ast).clone())))
            }
            Ast::Slice {
                offset,
                start,
                stop,
                step,
            } => self.slice(data, *offset, (*start, *stop), *step),
        }
    }

    fn either(&mut self, data: &Rcvar, lhs: &Ast, rhs: &Ast, ends_at: bool) -> EvalResult {
        let left = self.value(data, lhs)?;
        if left.is_truthy() == ends_at {
            Ok(left)
        } else {
            self.value(data, rhs)
        }
    }

    fn comparison(&mut self, data: &Rcvar, by: &Comparator, lhs: &Ast, rhs: &Ast) -> EvalResult {
        let left = self.value(data, lhs)?;
        let right = self.value(data, rhs)?;
        self.weigh(&left)?;
        self.weigh(&right)?;
        Ok(left
            .compare(by, &right)
            .map_or_else(null, |is_so| Rcvar::new(Variable::Bool(is_so))))
    }

    fn object_values(&mut self, data: &Rcvar, node: &Ast) -> EvalResult {
        let subject = self.value(data, node)?;
        let Some(fields) = subject.as_object() else {
            return Ok(null());
        };
        self.spend(fields.len())?;
        Ok(list_of(fields.values().cloned().collect()))
    }

    fn projection(&mut self, data: &Rcvar, lhs: &Ast, rhs: &Ast) -> EvalResult {
        let left = self.value(data, lhs)?;
        let Some(items) = left.as_array() else {
            return Ok(null());
        };
        let mut collected = Vec::new();
        for item in items {
            let found = self.value(item, rhs)?;
            if !found.is_null() {
                collected.push(found);
            }
        }
        self.made(Variable::Array(collected))
    }

    fn flattened(&mut self, data: &Rcvar, node: &Ast) -> EvalResult {
        let found = self.value(data, node)?;
        let Some(items) = found.as_array() else {
            return Ok(null());
        };
        let mut collected = Vec::new();
        for item in items {
            match item.as_array() {
                Some(inner) => {
                    self.spend(1 + inner.len())?;
                    collected.extend(inner.iter().cloned());
                }
                None => {
                    self.spend(1)?;
                    collected.push(item.clone());
                }
            }
        }
        Ok(list_of(collected))
    }

    fn list(&mut self, data: &Rcvar, elements: &[Ast]) -> EvalResult {
        if data.is_null() {
            return Ok(null());
        }
        let mut collected = Vec::with_capacity(elements.len());
        for element in elements {
            collected.push(self.value(data, element)?);
        }
        self.made(Variable::Array(collected))
    }

    fn object(&mut self, data: &Rcvar, elements: &[KeyValuePair]) -> EvalResult {
        if data.is_null() {
            return Ok(null());
        }
        let mut collected = std::collections::BTreeMap::new();
        for element in elements {
            let value = self.value(data, &element.value)?;
            collected.insert(element.key.clone(), value);
        }
        self.made(Variable::Object(collected))
    }

    fn slice(
        &mut self,
        data: &Rcvar,
        offset: usize,
        (start, stop): (Option<i32>, Option<i32>),
        step: i32,
    ) -> EvalResult {
        if step == 0 {
            return Err(self.failed(offset, RuntimeError::InvalidSlice));
        }
        let Some(items) = data.as_array() else {
            return Ok(null());
        };
        self.spend(items.len())?;
        // Clamping the step and the bounds beyond the number of items does not change the result
        // and prevents overflow.
        let bound =
            i32::try_from(items.len()).map_or(i32::MAX / 4, |len| len.min(i32::MAX / 4) + 1);
        let within = |index: i32| index.clamp(-bound, bound);
        let taken = data.slice(start.map(within), stop.map(within), within(step));
        Ok(taken.map_or_else(null, list_of))
    }

    fn function(&mut self, data: &Rcvar, offset: usize, name: &str, args: &[Ast]) -> EvalResult {
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.value(data, arg)?);
        }
        if let ("map", [by, items]) | ("sort_by" | "min_by" | "max_by", [items, by]) =
            (name, values.as_slice())
            && let (Some(by), Some(items)) = (by.as_expref(), items.as_array())
        {
            return self.by_expression(offset, name, items, by);
        }
        for value in &values {
            self.weigh(value)?;
        }
        self.spend_on_growth(name, &values)?;
        let Some(function) = DEFAULT_RUNTIME.get_function(name) else {
            return Err(self.failed(offset, RuntimeError::UnknownFunction(name.to_owned())));
        };
        let mut context = Context::new(self.expression, &DEFAULT_RUNTIME);
        context.offset = offset;
        let found = function.evaluate(&values, &mut context)?;
        self.weigh(&found)?;
        Ok(found)
    }

    /// Cost of a function beyond one pass over its arguments.
    fn spend_on_growth(&mut self, name: &str, values: &[Rcvar]) -> Result<(), QueryError> {
        match (name, values) {
            ("join", [glue, items]) => {
                let glue_bytes = glue.as_string().map_or(0, String::len);
                let count = items.as_array().map_or(0, Vec::len);
                self.spend(glue_bytes.saturating_mul(count) / TEXT_BYTES_PER_STEP)
            }
            ("sort", [items]) => {
                let before = self.steps_left;
                self.weigh(items)?;
                let weight = usize::try_from(before - self.steps_left).unwrap_or(usize::MAX);
                let count = items.as_array().map_or(0, Vec::len);
                self.spend(weight.saturating_mul(rounds_of_sorting(count)))
            }
            _ => Ok(()),
        }
    }

    /// The functions that evaluate an expression for each item.
    fn by_expression(
        &mut self,
        offset: usize,
        name: &str,
        items: &[Rcvar],
        by: &Ast,
    ) -> EvalResult {
        let mut keys = Vec::with_capacity(items.len());
        for item in items {
            keys.push(self.value(item, by)?);
        }
        if name == "map" {
            return self.made(Variable::Array(keys));
        }
        self.check_keys(offset, &keys)?;
        let mut keyed: Vec<(&Rcvar, &Rcvar)> = keys.iter().zip(items).collect();
        let before = self.steps_left;
        for key in &keys {
            self.weigh(key)?;
        }
        if name == "sort_by" {
            let weight = usize::try_from(before - self.steps_left).unwrap_or(usize::MAX);
            self.spend(weight.saturating_mul(rounds_of_sorting(keys.len())))?;
            keyed.sort_by(|a, b| a.0.cmp(b.0));
            return Ok(list_of(
                keyed.into_iter().map(|(_, item)| item.clone()).collect(),
            ));
        }
        // Equal items: the first one wins.
        let best = keyed.into_iter().reduce(|best, next| {
            let order = next.0.cmp(best.0);
            let is_better = if name == "max_by" {
                order.is_gt()
            } else {
                order.is_lt()
            };
            if is_better { next } else { best }
        });
        Ok(best.map_or_else(null, |(_, item)| item.clone()))
    }

    /// Checks that the keys are all strings or all numbers.
    fn check_keys(&self, offset: usize, keys: &[Rcvar]) -> Result<(), QueryError> {
        let wrong = |index: usize, expected: &str| {
            let actual = keys.get(index).map(|key| key.get_type().to_string());
            let error = RuntimeError::InvalidReturnType {
                expected: expected.to_owned(),
                actual: actual.unwrap_or_default(),
                position: 1,
                invocation: index + 1,
            };
            Err(self.failed(offset, error))
        };
        let Some(first) = keys.first() else {
            return Ok(());
        };
        if !first.is_string() && !first.is_number() {
            return wrong(0, "expression->string|expression->number");
        }
        let wanted = first.get_type();
        match keys.iter().position(|key| key.get_type() != wanted) {
            Some(index) => wrong(index, &format!("expression->{wanted}")),
            None => Ok(()),
        }
    }
}

fn null() -> Rcvar {
    Rcvar::new(Variable::Null)
}

/// Wraps existing values, so nothing is charged.
fn list_of(items: Vec<Rcvar>) -> Rcvar {
    Rcvar::new(Variable::Array(items))
}

fn item(data: &Rcvar, index: i32) -> Rcvar {
    let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let items = data.as_array();
    let found = items.and_then(|items| {
        if index < 0 {
            items.get(items.len().checked_sub(distance)?)
        } else {
            items.get(distance)
        }
    });
    found.cloned().unwrap_or_else(null)
}

/// Comparisons per item when `count` items are sorted.
fn rounds_of_sorting(count: usize) -> usize {
    usize::try_from(count.checked_ilog2().unwrap_or_default()).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests;
