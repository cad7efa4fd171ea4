//! The requests of an agent's API that pass: an allow list of methods and paths.

use super::{
    config::{ApiConfig, ApiRouteConfig},
    path_pattern::PathPattern,
    preset::ApiPreset,
};
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    values::Glob,
};
use http::Method;
use std::{collections::BTreeSet, sync::Arc};

/// The most routes of one API.
const MAX_ROUTES: usize = 256;

/// The routes of an API, in the order in which they decide.
#[derive(Debug)]
pub(in crate::gateway) struct ApiRouteTable {
    routes: Box<[ApiRoute]>,
    /// How many of them are the operator's; the others are those of the preset.
    own_count: usize,
    /// Whether some are for certain callers only.
    has_restrictions: bool,
}

/// One route.
#[derive(Debug)]
pub(in crate::gateway) struct ApiRoute {
    methods: Box<[Method]>,
    pub(super) pattern: PathPattern,
    callers: Box<[Glob]>,
    groups: Box<[Glob]>,
}

impl ApiRouteTable {
    /// Compiles the operator's routes, and those of a preset after them.
    ///
    /// # Errors
    /// Every problem, with the place of its route.
    pub(super) fn compile(
        routes: &[ApiRouteConfig],
        preset: Option<ApiPreset>,
    ) -> std::result::Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut compiled = Vec::new();
        if routes.len() > MAX_ROUTES {
            problems.push(format!("routes: there are more than {MAX_ROUTES}"));
        }
        for (index, route) in routes.iter().take(MAX_ROUTES).enumerate() {
            match ApiRoute::compile(route) {
                Ok(route) => compiled.push(route),
                Err(why) => problems.push(format!("routes[{index}].{why}")),
            }
        }
        let own_count = compiled.len();
        for (methods, path) in preset.into_iter().flat_map(|preset| preset.routes().routes) {
            match PathPattern::compile(path) {
                Ok(pattern) => compiled.push(ApiRoute::open(methods, pattern)),
                Err(why) => problems.push(format!("preset: {path} {why}")),
            }
        }
        let has_restrictions = compiled.iter().any(|route| !route.is_open());
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { routes: compiled.into(), own_count, has_restrictions })
    }

    /// Returns the first route of the operator that matches.
    pub(super) fn find_own(&self, method: &Method, path: &str) -> Option<&ApiRoute> {
        self.find_in(self.routes.get(..self.own_count)?, method, path)
    }

    /// Returns the first route of the preset that matches.
    pub(super) fn find_of_preset(&self, method: &Method, path: &str) -> Option<&ApiRoute> {
        self.find_in(self.routes.get(self.own_count..)?, method, path)
    }

    /// Returns the route for certain callers that a server could take a path for although it is not exactly the route's:
    /// `/admin/keys/` for `/admin/keys`. Those before `matching` decide, which lets the path pass.
    pub(super) fn find_near_restriction(
        &self,
        method: &Method,
        path: &str,
        matching: Option<&ApiRoute>,
    ) -> Option<&ApiRoute> {
        if !self.has_restrictions {
            return None;
        }
        let own = self.routes.iter().take(self.own_count);
        let mut before = own.take_while(|route| !matching.is_some_and(|matching| std::ptr::eq(matching, *route)));
        before.find(|route| !route.is_open() && route.allows(method) && route.pattern.nearly_matches(path))
    }

    fn find_in<'r>(&self, routes: &'r [ApiRoute], method: &Method, path: &str) -> Option<&'r ApiRoute> {
        routes.iter().find(|route| route.allows(method) && route.pattern.matches(path))
    }

    /// Returns the fault for a request that nothing lets pass; `others` are methods with which its path passes otherwise.
    #[cold]
    pub(super) fn refusal(&self, path: &str, others: impl Iterator<Item = Method>) -> Fault {
        let with_path = self.routes.iter().filter(|route| route.pattern.matches(path));
        let methods: BTreeSet<String> =
            with_path.flat_map(|route| route.methods.iter().cloned()).chain(others).map(|m| m.to_string()).collect();
        if methods.is_empty() {
            let fault = Fault::new(FaultCode::CapabilityNotFound, "The agent's API has no such path here");
            return fault.with_setting("agents.rules[].api.routes");
        }
        let allow = methods.into_iter().collect::<Vec<_>>().join(", ");
        let fault = Fault::new(FaultCode::MethodNotAllowed, format!("This path accepts {allow}"));
        fault.with_header("Allow", allow).with_setting("agents.rules[].api.routes")
    }

    /// Returns whether a pattern has a parameter of this name.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.routes.iter().any(|route| route.pattern.has_parameter(name))
    }
}

impl ApiRoute {
    fn compile(config: &ApiRouteConfig) -> std::result::Result<Self, String> {
        let method = |name: &String| {
            let is_known = name.bytes().all(|byte| byte.is_ascii_uppercase()) && name != "CONNECT" && name != "TRACE";
            Method::from_bytes(name.as_bytes()).ok().filter(|_| is_known).ok_or_else(|| {
                format!("methods: '{name}' is not a method that can pass (write GET, POST, PUT, PATCH or DELETE)")
            })
        };
        let methods = config.methods.iter().map(method).collect::<std::result::Result<Box<[_]>, _>>()?;
        if methods.is_empty() {
            return Err("methods: there is none".to_owned());
        }
        let pattern = PathPattern::compile(&config.path).map_err(|why| format!("path: '{}' {why}", config.path))?;
        Ok(Self { methods, pattern, callers: config.callers.clone().into(), groups: config.groups.clone().into() })
    }

    fn open(methods: &[Method], pattern: PathPattern) -> Self {
        Self { methods: methods.into(), pattern, callers: Box::default(), groups: Box::default() }
    }

    /// Whether the route is for every caller that may call the agent.
    fn is_open(&self) -> bool {
        self.callers.is_empty() && self.groups.is_empty()
    }

    fn allows(&self, method: &Method) -> bool {
        self.methods.contains(method) || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }

    /// Returns the name of the route in logs.
    pub(in crate::gateway) fn label(&self) -> &Arc<str> {
        self.pattern.text()
    }

    /// Refuses callers for whom the route is not.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_caller(&self, caller: &Caller) -> Result<()> {
        // As in grants, a wildcard means callers with a credential.
        let is_named = |glob: &Glob| glob.matches(&caller.id) && (glob.is_exact() || !caller.is_anonymous());
        let is_member = |glob: &Glob| caller.groups.iter().any(|group| glob.matches(group));
        if self.is_open() || self.callers.iter().any(is_named) || self.groups.iter().any(is_member) {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::PermissionDenied, "The caller may not use this path of the agent's API");
        Err(fault.with_setting("agents.rules[].api.routes"))
    }
}

/// A route of an API that is open to every caller of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRoute {
    /// One of the operator's, by its number.
    Own(usize),
    /// One of the preset's, by its pattern.
    OfPreset(&'static str),
}

/// Returns the open routes of an API that let spellings of a restricted path pass, each with the number of the restricted
/// route. A server may take such a spelling for the restricted path.
pub fn open_routes_beside_restrictions(config: &ApiConfig) -> Vec<(OpenRoute, usize)> {
    let compile = |route: &ApiRouteConfig| ApiRoute::compile(route).ok();
    let routes: Vec<_> = config.routes.iter().take(MAX_ROUTES).map(compile).collect();
    let restriction_beside = |open: &ApiRoute| {
        let is_evaded = |route: &ApiRoute| {
            !route.is_open()
                && open.pattern.has_spellings_of(&route.pattern)
                && route.methods.iter().any(|method| open.allows(method))
        };
        routes.iter().position(|route| route.as_ref().is_some_and(is_evaded))
    };
    let own = routes.iter().enumerate().filter_map(|(at, route)| Some((OpenRoute::Own(at), route.as_ref()?)));
    let own = own.filter(|(_, route)| route.is_open());
    let of_preset: Vec<_> = config
        .preset
        .into_iter()
        .flat_map(|preset| preset.routes().routes)
        .filter_map(|(methods, path)| {
            let pattern = PathPattern::compile(path).ok()?;
            Some((OpenRoute::OfPreset(path), ApiRoute::open(methods, pattern)))
        })
        .collect();
    let open = own.chain(of_preset.iter().map(|(name, route)| (*name, route)));
    open.filter_map(|(name, route)| Some((name, restriction_beside(route)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(methods: &[&str], path: &str) -> ApiRouteConfig {
        ApiRouteConfig {
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            path: path.to_owned(),
            callers: Vec::new(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn the_first_route_with_path_and_method_decides_and_others_are_404_or_405() {
        let routes = [route(&["GET"], "/threads/{id}"), route(&["POST", "DELETE"], "/threads/**")];
        let table = ApiRouteTable::compile(&routes, None).unwrap();
        assert_eq!(&**table.find_own(&Method::GET, "/threads/1").unwrap().label(), "/threads/{id}");
        assert_eq!(&**table.find_own(&Method::HEAD, "/threads/1").unwrap().label(), "/threads/{id}");
        assert_eq!(&**table.find_own(&Method::POST, "/threads/1").unwrap().label(), "/threads/**");
        assert!(
            table.find_own(&Method::GET, "/store").is_none() && table.find_own(&Method::PUT, "/threads/1").is_none()
        );
        assert!(table.find_of_preset(&Method::GET, "/threads/1").is_none());
        assert_eq!(table.refusal("/store", std::iter::empty()).http_status(), 404);
        assert_eq!(table.refusal("/store", [Method::GET].into_iter()).http_status(), 405);
        let fault = table.refusal("/threads/1", std::iter::empty());
        assert_eq!(fault.http_status(), 405);
        assert!(fault.headers().any(|header| header == ("Allow", "DELETE, GET, POST")));
    }

    #[test]
    fn bad_lists_are_refused() {
        for (routes, problem) in [
            (vec![route(&[], "/a")], "routes[0].methods: there is none"),
            (
                vec![route(&["get"], "/a")],
                "routes[0].methods: 'get' is not a method that can pass (write GET, POST, PUT, PATCH or DELETE)",
            ),
            (
                vec![route(&["CONNECT"], "/a")],
                "routes[0].methods: 'CONNECT' is not a method that can pass (write GET, POST, PUT, PATCH or DELETE)",
            ),
            (vec![route(&["GET"], "a")], "routes[0].path: 'a' does not begin with a slash"),
        ] {
            assert_eq!(ApiRouteTable::compile(&routes, None).unwrap_err(), [problem]);
        }
        let many = vec![route(&["GET"], "/a"); 257];
        assert_eq!(ApiRouteTable::compile(&many, None).unwrap_err(), ["routes: there are more than 256"]);
    }

    #[test]
    fn the_patterns_of_every_preset_compile() {
        use ApiPreset::{A2a, Adk, AgentFramework, Agentcore, Langgraph, Mcp, Openai};
        for preset in [Langgraph, Adk, Agentcore, AgentFramework, Openai, Mcp, A2a] {
            let table = ApiRouteTable::compile(&[], Some(preset)).unwrap();
            assert!(table.find_of_preset(&Method::GET, "/admin").is_none(), "{preset:?}");
            assert_eq!(table.refusal("/admin", std::iter::empty()).http_status(), 404, "{preset:?}");
        }
    }
}
