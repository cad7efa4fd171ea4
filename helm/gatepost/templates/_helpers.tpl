{{- define "gatepost.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gatepost.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "gatepost.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gatepost.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gatepost.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The labels that name the pods of a component: "gateway", or "test", which no selector may match. Call with
(list $ "component"). A Deployment's selector cannot change, so nothing else belongs here. */}}
{{- define "gatepost.componentLabels" -}}
app.kubernetes.io/name: {{ include "gatepost.name" (index . 0) | quote }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "gatepost.selectorLabels" -}}
{{- include "gatepost.componentLabels" (list . "gateway") -}}
{{- end -}}

{{/* All labels of an object. Call with (list $ "component" MAP), where MAP has labels of the object besides. Labels of the
chart win over MAP, and MAP wins over commonLabels: a label that stands twice is no valid object, and selectors and Helm
rely on the chart's. */}}
{{- define "gatepost.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := include "gatepost.componentLabels" (list $root (index . 1)) | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge $own (index . 2 | default dict) ($root.Values.commonLabels | default dict)) -}}
{{- end -}}

{{- define "gatepost.labels" -}}
{{- include "gatepost.labelsWith" (list . "gateway" dict) -}}
{{- end -}}

{{- define "gatepost.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "gatepost.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "gatepost.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is empty: build the image with the Dockerfile of the repository, push it to your registry, and name it (docs/deploy.md)" -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The folder of files that the gateway writes. */}}
{{- define "gatepost.stateFolder" -}}
/var/lib/gatepost
{{- end -}}

{{/* The folder of the documents in the values. */}}
{{- define "gatepost.agentsFolder" -}}
/etc/gatepost/agents
{{- end -}}

{{/* Where the gateway looks for the token of a source of kind kubernetes. */}}
{{- define "gatepost.serviceAccountFolder" -}}
/var/run/secrets/kubernetes.io/serviceaccount
{{- end -}}

{{/* The volumes of extraVolumes that are a pod's own, as a JSON list of names: every other volume may be that of several
pods. */}}
{{- define "gatepost.ownVolumes" -}}
{{- $names := list -}}
{{- range $volume := .Values.extraVolumes -}}
{{- if or (hasKey $volume "emptyDir") (hasKey $volume "ephemeral") -}}{{- $names = append $names $volume.name -}}{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The mount of the gateway's container that has a path, as JSON: its path, its kind, "ends" if its files end with the pod,
and "shared" if other pods may have them too. What becomes of files on a volume of extraVolumes is the operator's choice. A
relative path is beside the configuration. Call with (list $ "path"). */}}
{{- define "gatepost.mountOf" -}}
{{- $root := index . 0 -}}
{{- $path := clean (index . 1) -}}
{{- if not (isAbs $path) -}}{{- $path = printf "/etc/gatepost/config/%s" $path | clean -}}{{- end -}}
{{- $rootKind := ternary "readOnly" "root" (($root.Values.securityContext | default dict).readOnlyRootFilesystem | default false) -}}
{{- $mounts := list (dict "path" "/" "kind" $rootKind "ends" true) (dict "path" "/etc/gatepost" "kind" "readOnly") (dict "path" "/dev" "kind" "device" "ends" true) -}}
{{- $mounts = append $mounts (dict "path" (include "gatepost.stateFolder" $root) "kind" "state" "ends" (not $root.Values.persistence.enabled)) -}}
{{- $mounts = append $mounts (dict "path" "/tmp" "kind" "temporary" "ends" true) -}}
{{- $own := include "gatepost.ownVolumes" $root | fromJsonArray -}}
{{- range $mount := $root.Values.extraVolumeMounts -}}
{{- $isShared := not (or $mount.subPathExpr (has $mount.name $own)) -}}
{{- $mounts = append $mounts (dict "path" (clean $mount.mountPath) "kind" (ternary "readOnly" "extra" ($mount.readOnly | default false)) "shared" $isShared) -}}
{{- end -}}
{{- $found := first $mounts -}}
{{- range $mount := $mounts -}}
{{- $isAbove := hasPrefix (printf "%s/" (trimSuffix "/" $mount.path)) (printf "%s/" $path) -}}
{{- if and $isAbove (gt (len $mount.path) (len $found.path)) -}}{{- $found = $mount -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The files and folders that the gateway writes, as a JSON list of objects with the setting, its path and its mount. */}}
{{- define "gatepost.writtenPaths" -}}
{{- $config := include "gatepost.config" . | fromJson -}}
{{- $paths := dict "config.agents.last_known_good" $config.agents.last_known_good -}}
{{- range $name := list "registry" "tasks" -}}
{{- $section := get $config $name -}}
{{- if kindIs "map" $section -}}
{{- if not $section.database -}}{{- $_ := set $paths (printf "config.%s.sqlite_file" $name) $section.sqlite_file -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $at, $bridge := $config.mqtt_bridge -}}{{- $_ := set $paths (printf "config.mqtt_bridge[%d].state_folder" $at) $bridge.state_folder -}}{{- end -}}
{{- range $setting := list "audit.file" "audit.anchor_file" "limits.quota_state_file" "access_log.output" "shutdown.handover_socket" -}}
{{- $parts := splitList "." $setting -}}
{{- $_ := set $paths (printf "config.%s" $setting) (get (get $config (first $parts) | default dict) (last $parts)) -}}
{{- end -}}
{{- $written := list -}}
{{- range $setting, $path := $paths -}}
{{- if and $path (not (has $path (list "stdout" "stderr" "off"))) -}}
{{- $written = append $written (dict "setting" $setting "path" $path "mount" (include "gatepost.mountOf" (list $ $path) | fromJson)) -}}
{{- end -}}
{{- end -}}
{{- toJson $written -}}
{{- end -}}

{{/* The settings of files besides SQLite that one gateway writes at a time and that other pods would have too, joined by
" and ". */}}
{{- define "gatepost.sharedFiles" -}}
{{- $settings := list -}}
{{- range $written := include "gatepost.writtenPaths" . | fromJsonArray -}}
{{- if and $written.mount.shared (has $written.setting (list "config.audit.file" "config.audit.anchor_file" "config.limits.quota_state_file" "config.access_log.output")) -}}
{{- $settings = append $settings $written.setting -}}
{{- end -}}
{{- end -}}
{{- join " and " $settings -}}
{{- end -}}

{{/* The namespaces that sources of kind kubernetes read with the token of the chart, as a sorted JSON list; ["*"] for all. */}}
{{- define "gatepost.namespacesOfSources" -}}
{{- $folder := include "gatepost.serviceAccountFolder" . -}}
{{- $namespaces := list -}}
{{- range $source := dig "sources" list (.Values.config.agents | default dict) -}}
{{- if kindIs "map" $source -}}
{{- $settings := $source.kubernetes | default dict -}}
{{- if and (eq (toString $source.kind) "kubernetes") (hasPrefix "https:" ($source.url | default "https:" | toString)) (not $source.credential) (eq $folder ($settings.service_account | default $folder)) -}}
{{- $namespaces = concat $namespaces ($settings.namespaces | default (list (include "gatepost.namespace" $))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if has "*" $namespaces -}}{{- $namespaces = list "*" -}}{{- end -}}
{{- $namespaces | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* The namespaces in which the gateway may read, as a JSON list. */}}
{{- define "gatepost.readableNamespaces" -}}
{{- $namespaces := .Values.kubernetesSources.namespaces | default (include "gatepost.namespacesOfSources" . | fromJsonArray) -}}
{{- toJson ($namespaces | default (list (include "gatepost.namespace" .))) -}}
{{- end -}}

{{/* "true" if more than one pod may run. */}}
{{- define "gatepost.runsSeveralPods" -}}
{{- $most := int .Values.replicas -}}
{{- if .Values.autoscaling.enabled -}}{{- $most = int .Values.autoscaling.maxReplicas -}}{{- end -}}
{{- if gt $most 1 -}}true{{- end -}}
{{- end -}}

{{/* The sections of the configuration that keep their data in SQLite, joined by " and ". */}}
{{- define "gatepost.sqliteSections" -}}
{{- $config := .Values.config -}}
{{- $sections := list -}}
{{- $hasRegistry := kindIs "map" $config.registry -}}
{{- $hasTasks := kindIs "map" $config.tasks -}}
{{- $registryDatabase := "" -}}
{{- if $hasRegistry -}}{{- $registryDatabase = $config.registry.database -}}{{- end -}}
{{- if and $hasRegistry (not $registryDatabase) -}}{{- $sections = append $sections "config.registry" -}}{{- end -}}
{{- if and $hasTasks (not $config.tasks.database) (or $config.tasks.sqlite_file (not $registryDatabase)) -}}
{{- $sections = append $sections "config.tasks" -}}
{{- end -}}
{{- join " and " $sections -}}
{{- end -}}

{{/* "true" if two gateways may not run at once, so that the old pod has to end before the new one starts. */}}
{{- define "gatepost.runsAlone" -}}
{{- if or (include "gatepost.sqliteSections" .) .Values.persistence.enabled .Values.config.mqtt_bridge (include "gatepost.sharedFiles" .) -}}true{{- end -}}
{{- end -}}

{{/* "redis" or "database" if the values of state name a server. */}}
{{- define "gatepost.stateEngine" -}}
{{- if or .Values.state.redis.url .Values.state.redis.urlSecret -}}redis
{{- else if or .Values.state.database.url .Values.state.database.urlSecret -}}database
{{- end -}}
{{- end -}}

{{/* The files of the shared state below /etc/gatepost/config, as a JSON list of objects with path, kind, name and key. */}}
{{- define "gatepost.stateFiles" -}}
{{- $files := list -}}
{{- $engine := include "gatepost.stateEngine" . -}}
{{- $references := dict -}}
{{- if eq $engine "redis" -}}
{{- $redis := .Values.state.redis -}}
{{- $references = dict "url" $redis.urlSecret "password" $redis.passwordSecret "sentinel-password" $redis.sentinelPasswordSecret "ca.pem" $redis.caConfigMap -}}
{{- else if $engine -}}
{{- $references = dict "url" .Values.state.database.urlSecret "ca.pem" .Values.state.database.caConfigMap -}}
{{- end -}}
{{- range $path, $reference := $references -}}
{{- if $reference -}}
{{- $files = append $files (dict "path" (printf "state/%s" $path) "kind" (ternary "configMap" "secret" (eq $path "ca.pem")) "name" $reference.name "key" $reference.key) -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* The section state of the configuration, as JSON, from the values of state. */}}
{{- define "gatepost.stateSection" -}}
{{- $engine := include "gatepost.stateEngine" . -}}
{{- $values := .Values.state -}}
{{- $section := dict -}}
{{- if eq $engine "redis" -}}
{{- $redis := dict "url" ($values.redis.url | default "file:state/url") -}}
{{- if $values.redis.passwordSecret -}}{{- $_ := set $redis "password" "file:state/password" -}}{{- end -}}
{{- if $values.redis.sentinelMaster -}}
{{- $sentinel := dict "master" $values.redis.sentinelMaster -}}
{{- if $values.redis.sentinelPasswordSecret -}}{{- $_ := set $sentinel "password" "file:state/sentinel-password" -}}{{- end -}}
{{- $_ := set $redis "sentinel" $sentinel -}}
{{- end -}}
{{- if $values.redis.cluster -}}{{- $_ := set $redis "cluster" true -}}{{- end -}}
{{- if $values.redis.caConfigMap -}}{{- $_ := set $redis "ca" "state/ca.pem" -}}{{- end -}}
{{- if $values.redis.plaintext -}}{{- $_ := set $redis "plaintext" true -}}{{- end -}}
{{- with $values.redis.keyPrefix -}}{{- $_ := set $redis "key_prefix" . -}}{{- end -}}
{{- $_ := set $section "redis" $redis -}}
{{- else -}}
{{- $_ := set $section "database" ($values.database.url | default "file:state/url") -}}
{{- if $values.database.caConfigMap -}}{{- $_ := set $section "database_ca" "state/ca.pem" -}}{{- end -}}
{{- end -}}
{{- with $values.timeout -}}{{- $_ := set $section "timeout" . -}}{{- end -}}
{{- toJson $section -}}
{{- end -}}

{{/* The ports of the server, as a JSON list: usual ones, because a port may be missing in the URL, and those of the URL.
Sentinels name a primary with a port of its own. */}}
{{- define "gatepost.statePorts" -}}
{{- $engine := include "gatepost.stateEngine" . -}}
{{- $ports := .Values.state.networkPorts -}}
{{- if not $ports -}}
{{- $ports = list (ternary 6379 5432 (eq $engine "redis")) -}}
{{- if and (eq $engine "redis") .Values.state.redis.sentinelMaster -}}{{- $ports = append $ports 26379 -}}{{- end -}}
{{- $url := ternary .Values.state.redis.url .Values.state.database.url (eq $engine "redis") -}}
{{- range $found := regexFindAll ":[0-9]+([,/?]|$)" ($url | default "") -1 -}}
{{- $ports = append $ports (regexFind "[0-9]+" $found | int) -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $ports) -}}
{{- end -}}

{{/* The rules of egress: those of the values, and one to the server of the shared state. */}}
{{- define "gatepost.egress" -}}
{{- $rules := .Values.networkPolicy.egress -}}
{{- if .Values.state.networkPeers -}}
{{- $ports := list -}}
{{- range $port := include "gatepost.statePorts" . | fromJsonArray -}}
{{- $ports = append $ports (dict "port" (int $port) "protocol" "TCP") -}}
{{- end -}}
{{- $rules = append $rules (dict "to" .Values.state.networkPeers "ports" $ports) -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}

{{/* The milliseconds of a duration of the configuration, such as 5m. The schema checks the form. */}}
{{- define "gatepost.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- $number := regexFind "^[0-9]+" (toString .) | int64 -}}
{{- $unit := regexFind "[a-z]+$" (toString .) -}}
{{- mul $number (get $units $unit | default 1000) -}}
{{- end -}}

{{/* The time that settings of agents allow a whole call, by timeouts.total or a preset. Empty: they set none. */}}
{{- define "gatepost.totalTimeout" -}}
{{- $timeouts := (. | default dict).timeouts | default dict -}}
{{- $presets := dict "interactive" "5m" "thinking" "15m" "long_running" "1h" -}}
{{- $timeouts.total | default (get $presets ($timeouts.preset | default "")) -}}
{{- end -}}

{{/* The milliseconds of the longest call: the longest total timeout of the defaults and of all rules. */}}
{{- define "gatepost.longestCall" -}}
{{- $agents := .Values.config.agents | default dict -}}
{{- $general := include "gatepost.totalTimeout" $agents.defaults -}}
{{- $longest := include "gatepost.milliseconds" ($general | default "5m") | int64 -}}
{{- range $rule := $agents.rules -}}
{{- /* Where no timeout is set, requests to the API of a framework have the timeouts of the preset thinking. */ -}}
{{- $fallback := ternary "15m" "5m" (($rule.api | default dict).preset | empty | not) -}}
{{- $total := coalesce (include "gatepost.totalTimeout" $rule.settings) $general $fallback -}}
{{- $longest = max $longest (include "gatepost.milliseconds" $total | int64) -}}
{{- end -}}
{{- $longest -}}
{{- end -}}

{{/* The seconds that a shutdown may take: the delay, the drain and the 20 s that the gateway allows for the rest. The
drain timeout is by default the longest call and 5 s. */}}
{{- define "gatepost.shutdownSeconds" -}}
{{- $shutdown := .Values.config.shutdown | default dict -}}
{{- $drain := 0 -}}
{{- if $shutdown.drain_timeout -}}
{{- $drain = include "gatepost.milliseconds" $shutdown.drain_timeout | int64 -}}
{{- else -}}
{{- $drain = add (include "gatepost.longestCall" . | int64) 5000 -}}
{{- end -}}
{{- $delay := include "gatepost.milliseconds" ($shutdown.listener_close_delay | default "0s") | int64 -}}
{{- div (add $drain $delay 20999) 1000 -}}
{{- end -}}

{{- define "gatepost.terminationGracePeriodSeconds" -}}
{{- $needed := include "gatepost.shutdownSeconds" . | int64 -}}
{{- $set := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $set -}}
{{- $needed -}}
{{- else if lt (int64 $set) $needed -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but a shutdown may take %d s (config.shutdown.listener_close_delay, the drain timeout and 20 s): set config.shutdown.drain_timeout, or a longer time" (int64 $set) $needed) -}}
{{- else -}}
{{- int64 $set -}}
{{- end -}}
{{- end -}}

{{/* "true" if a value has a URL with a password: of a user, or in the query of a URL of PostgreSQL. In JSON, & is \u0026. */}}
{{- define "gatepost.hasPassword" -}}
{{- $userinfo := "[a-z]://[^/?#@\\s\"]*:([^/?#@\\s\"]|\\\\\")+@" -}}
{{- $query := "postgres(ql)?://[^\\s\"]*(\\?|\\\\u0026)password=" -}}
{{- if regexMatch (printf "%s|%s" $userinfo $query) (toJson .) -}}true{{- end -}}
{{- end -}}

{{/* The port of an address such as 0.0.0.0:8080 or [::]:8080. */}}
{{- define "gatepost.port" -}}
{{- regexFind "[0-9]+$" (toString .) -}}
{{- end -}}

{{- define "gatepost.isLoopback" -}}
{{- if or (hasPrefix "127." (toString .)) (hasPrefix "[::1]" (toString .)) (hasPrefix "localhost" (toString .)) -}}true{{- end -}}
{{- end -}}

{{- define "gatepost.adminAddress" -}}
{{- dig "admin" "address" "127.0.0.1:9901" .Values.config -}}
{{- end -}}

{{/* The port of the Service for the first listener. */}}
{{- define "gatepost.servicePort" -}}
{{- $first := first .Values.config.listeners -}}
{{- if not (kindIs "invalid" .Values.service.port) -}}
{{- int .Values.service.port -}}
{{- else if $first.tls -}}443{{- else -}}80{{- end -}}
{{- end -}}

{{/* The bytes of a size, such as 2Gi of Kubernetes or 2GiB of the configuration. The schema checks the form. */}}
{{- define "gatepost.bytes" -}}
{{- $units := dict "K" 1024 "M" 1048576 "G" 1073741824 "T" 1099511627776 -}}
{{- $number := regexFind "^[0-9.]+" (toString .) | float64 -}}
{{- mulf $number (get $units (regexFind "[KMGT]" (toString .)) | default 1) | int64 -}}
{{- end -}}

{{/* The SQLite file of tasks; empty if there is none. Call with the configuration. */}}
{{- define "gatepost.tasksFile" -}}
{{- $registry := .registry | default dict -}}
{{- if and (kindIs "map" .tasks) (not .tasks.database) -}}
{{- $ofRegistry := ternary "" $registry.sqlite_file ($registry.database | empty | not) -}}
{{- .tasks.sqlite_file | default $ofRegistry -}}
{{- end -}}
{{- end -}}

{{/* The value that has the size of the volume of a file, as JSON with its name and size; {} if the chart does not know the
size. Call with (list $ "path"). */}}
{{- define "gatepost.sizeOfVolume" -}}
{{- $root := index . 0 -}}
{{- $kind := (include "gatepost.mountOf" . | fromJson).kind -}}
{{- $size := dict -}}
{{- if and (eq $kind "state") $root.Values.persistence.enabled -}}
{{- if not $root.Values.persistence.existingClaim -}}{{- $size = dict "value" "persistence.size" "size" $root.Values.persistence.size -}}{{- end -}}
{{- else if has $kind (list "state" "temporary") -}}
{{- $size = dict "value" "ephemeralSize" "size" $root.Values.ephemeralSize -}}
{{- end -}}
{{- toJson $size -}}
{{- end -}}

{{/* The default of tasks.max_size: half of the volume, where that is less than the gateway's default of 2 GiB; else empty.
Call with (list $ CONFIGURATION). */}}
{{- define "gatepost.maxTasksSize" -}}
{{- $file := include "gatepost.tasksFile" (index . 1) -}}
{{- if $file -}}
{{- with include "gatepost.sizeOfVolume" (list (index . 0) $file) | fromJson -}}
{{- $mebibytes := div (include "gatepost.bytes" .size | int64) 2097152 -}}
{{- if lt $mebibytes 2048 -}}{{- max 1 $mebibytes -}}MiB{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: the values, the paths of what the gateway writes, and the bound on tasks. JSON, which is YAML,
because YAML of older versions of Helm writes large integers as floating-point numbers. */}}
{{- define "gatepost.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $state := include "gatepost.stateFolder" . -}}
{{- $agents := $config.agents | default dict -}}
{{- if .Values.documents -}}
{{- $sources := $agents.sources | default list -}}
{{- $folder := include "gatepost.agentsFolder" . -}}
{{- if not (has $folder $sources) -}}{{- $_ := set $agents "sources" (prepend $sources $folder) -}}{{- end -}}
{{- end -}}
{{- if not (hasKey $agents "last_known_good") -}}{{- $_ := set $agents "last_known_good" (printf "%s/last-known-good" $state) -}}{{- end -}}
{{- $_ := set $config "agents" $agents -}}
{{- if kindIs "map" $config.registry -}}
{{- if not (or $config.registry.database $config.registry.sqlite_file) -}}
{{- $_ := set $config.registry "sqlite_file" (printf "%s/gatepost.db" $state) -}}
{{- end -}}
{{- else if kindIs "map" $config.tasks -}}
{{- if not (or $config.tasks.database $config.tasks.sqlite_file) -}}
{{- $_ := set $config.tasks "sqlite_file" (printf "%s/gatepost.db" $state) -}}
{{- end -}}
{{- end -}}
{{- if kindIs "map" $config.tasks -}}
{{- with include "gatepost.maxTasksSize" (list . $config) -}}
{{- if not (hasKey $config.tasks "max_size") -}}{{- $_ := set $config.tasks "max_size" . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "gatepost.stateEngine" . -}}{{- $_ := set $config "state" (include "gatepost.stateSection" . | fromJson) -}}{{- end -}}
{{- range $bridge := $config.mqtt_bridge -}}
{{- if not (hasKey $bridge "state_folder") -}}{{- $_ := set $bridge "state_folder" (printf "%s/mqtt-bridge" $state) -}}{{- end -}}
{{- end -}}
{{- toPrettyJson $config -}}
{{- end -}}

{{/* The settings that the gateway reads at its start only (docs/configuration.md, Reload). Pods are replaced when these
change, and only then: the gateway itself notices a change of the rest. */}}
{{- define "gatepost.startupSettings" -}}
{{- $config := include "gatepost.config" . | fromJson -}}
{{- $startup := pick $config "listeners" "connections" "health" "access_log" "audit" "shutdown" "state" -}}
{{- if kindIs "map" $config.admin -}}
{{- $admin := pick $config.admin "address" "allowed_hosts" -}}
{{- if kindIs "map" $config.admin.console -}}{{- $_ := set $admin "console" (pick $config.admin.console "enabled") -}}{{- end -}}
{{- with $admin -}}{{- $_ := set $startup "admin" . -}}{{- end -}}
{{- end -}}
{{- if kindIs "map" $config.registry -}}{{- $_ := set $startup "registry" (pick $config.registry "sqlite_file" "database" "database_ca") -}}{{- end -}}
{{- if kindIs "map" $config.tasks -}}
{{- $tasks := pick $config.tasks "sqlite_file" "database" "database_ca" "max_running" -}}
{{- /* resume: null turns it off, which is not its default. */ -}}
{{- if kindIs "map" $config.tasks.resume -}}{{- $_ := set $tasks "resume" (pick $config.tasks.resume "max_streams") -}}
{{- else if hasKey $config.tasks "resume" -}}{{- $_ := set $tasks "resume" "off" -}}{{- end -}}
{{- $_ := set $startup "tasks" $tasks -}}
{{- end -}}
{{- with pick ($config.limits | default dict) "quota_state_file" "max_share" -}}{{- $_ := set $startup "limits" . -}}{{- end -}}
{{- toJson $startup -}}
{{- end -}}

{{/* "true" if the cluster serves an API, or the check is off. Call with (list $ "group/version"). */}}
{{- define "gatepost.hasApi" -}}
{{- $root := index . 0 -}}
{{- if or $root.Values.monitoring.disableApiCheck ($root.Capabilities.APIVersions.Has (index . 1)) -}}true{{- end -}}
{{- end -}}

{{/* Values that contradict each other, each refused with a sentence. Templates that rely on them include this first, because
Helm renders templates in no documented order. */}}
{{- define "gatepost.validate" -}}
{{- $config := .Values.config -}}
{{- $several := include "gatepost.runsSeveralPods" . -}}
{{- $sqlite := include "gatepost.sqliteSections" . -}}
{{- $what := "replicas is greater than 1" -}}
{{- if .Values.autoscaling.enabled -}}{{- $what = "autoscaling.maxReplicas is greater than 1" -}}{{- end -}}
{{- if and $several $sqlite -}}
{{- fail (printf "%s, but SQLite, where %s would keep data, is for one gateway: set the database of each (PostgreSQL, from a Secret: env:NAME), or run one pod" $what $sqlite) -}}
{{- end -}}
{{- if and $several .Values.persistence.enabled -}}
{{- fail (printf "%s, but the volume of persistence serves one gateway: set persistence.enabled to false; databases keep what several gateways share" $what) -}}
{{- end -}}
{{- $redis := or .Values.state.redis.url .Values.state.redis.urlSecret -}}
{{- $database := or .Values.state.database.url .Values.state.database.urlSecret -}}
{{- if and $redis $database -}}
{{- fail "state.redis and state.database both name a server: the state is in one of them" -}}
{{- end -}}
{{- if and (or $redis $database) (kindIs "map" $config.state) -}}
{{- fail "state and config.state both name the server of the shared state: set one of them" -}}
{{- end -}}
{{- range $engine := list "redis" "database" -}}
{{- $values := get $.Values.state $engine -}}
{{- if and $values.url $values.urlSecret -}}
{{- fail (printf "state.%s.url and state.%s.urlSecret are both set: the URL is in one of them" $engine $engine) -}}
{{- end -}}
{{- end -}}
{{- if include "gatepost.hasPassword" (list .Values.state.redis.url .Values.state.database.url) -}}
{{- fail "the URL of state.redis or state.database holds a password, which a ConfigMap would show to many: put the URL into a Secret, and name it with urlSecret" -}}
{{- end -}}
{{- if and .Values.state.redis.sentinelPasswordSecret (not .Values.state.redis.sentinelMaster) -}}
{{- fail "state.redis.sentinelPasswordSecret is set, but no sentinels are: set state.redis.sentinelMaster" -}}
{{- end -}}
{{- if and .Values.state.networkPeers (not (or $redis $database)) -}}
{{- fail "state.networkPeers is set, but state names no server: set state.redis or state.database, or write the rule to networkPolicy.egress" -}}
{{- end -}}
{{- if and $several (not (or $redis $database (kindIs "map" $config.state) .Values.state.perReplica)) -}}
{{- fail (printf "%s, but each pod would have its own rates, quotas, idempotency keys and paired pages: set state.redis or state.database, or state.perReplica to true if limits of each pod are wanted" $what) -}}
{{- end -}}
{{- if and $several $config.mqtt_bridge -}}
{{- fail (printf "%s, but only one gateway may offer an agent on a broker (config.mqtt_bridge): run the bridge as a release of its own with one pod" $what) -}}
{{- end -}}
{{- range $written := include "gatepost.writtenPaths" . | fromJsonArray -}}
{{- if eq $written.mount.kind "readOnly" -}}
{{- fail (printf "%s is %s, where the gateway cannot write: set a path below %s, or on a volume of extraVolumeMounts" $written.setting $written.path (include "gatepost.stateFolder" $)) -}}
{{- end -}}
{{- if and $written.mount.ends (eq $written.setting "config.registry.sqlite_file") -}}
{{- fail "config.registry would lose every published document with its pod: set persistence.enabled to true, or config.registry.database" -}}
{{- end -}}
{{- if and $written.mount.ends (eq $written.setting "config.audit.file") -}}
{{- fail "config.audit would lose its log with the pod: set persistence.enabled to true, which is for one pod, or a path of config.audit.file on a volume of extraVolumeMounts" -}}
{{- end -}}
{{- if and $written.mount.ends (eq $written.setting "config.audit.anchor_file") -}}
{{- fail "config.audit would lose its anchor with the pod: set a path of config.audit.anchor_file on a volume of extraVolumeMounts" -}}
{{- end -}}
{{- end -}}
{{- $maxTasksSize := dig "max_size" "" ($config.tasks | default dict) -}}
{{- $tasksFile := include "gatepost.tasksFile" (include "gatepost.config" . | fromJson) -}}
{{- if and $maxTasksSize $tasksFile -}}
{{- with include "gatepost.sizeOfVolume" (list . $tasksFile) | fromJson -}}
{{- if gt (mul 5 (include "gatepost.bytes" $maxTasksSize | int64)) (mul 4 (include "gatepost.bytes" .size | int64)) -}}
{{- fail (printf "config.tasks.max_size is %s, but the volume of tasks has %s (%s), of which they may take 80 %% at most: set a smaller max_size, or a larger %s" $maxTasksSize .size .value .value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $shared := include "gatepost.sharedFiles" . -}}
{{- if and $several $shared -}}
{{- fail (printf "%s, but the file of %s is for one gateway: give each pod its own, on a volume with emptyDir or ephemeral, or by a mount with subPathExpr" $what $shared) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (kindIs "invalid" .Values.autoscaling.targetCpuUtilization) (kindIs "invalid" .Values.autoscaling.targetCallsInFlight) -}}
{{- fail "autoscaling measures nothing: set autoscaling.targetCpuUtilization or autoscaling.targetCallsInFlight" -}}
{{- end -}}
{{- $fullname := include "gatepost.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "a Service cannot have the name %s, because it needs a letter first, and then lower-case letters, digits and - only: set fullnameOverride" $fullname) -}}
{{- end -}}
{{- $containerPorts := list -}}
{{- $servicePorts := list -}}
{{- range $at, $listener := $config.listeners -}}
{{- $port := include "gatepost.port" $listener.address -}}
{{- $containerPorts = append $containerPorts $port -}}
{{- $servicePorts = append $servicePorts (ternary (include "gatepost.servicePort" $) $port (eq $at 0)) -}}
{{- if include "gatepost.isLoopback" $listener.address -}}
{{- fail (printf "config.listeners[%d].address is %s: no other pod reaches a loopback address (use 0.0.0.0 or [::])" $at $listener.address) -}}
{{- end -}}
{{- if not (or $listener.tls $listener.allow_plaintext) -}}
{{- fail (printf "config.listeners[%d] has neither tls nor allow_plaintext: the gateway serves plain HTTP beyond loopback only where allow_plaintext is true" $at) -}}
{{- end -}}
{{- if has $port (list "" "0") -}}
{{- fail (printf "config.listeners[%d].address is %s: a Service needs a port that is known" $at $listener.address) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $servicePorts) (len (uniq $servicePorts)) -}}
{{- fail (printf "two listeners would have one port of the Service (%s): service.port is the first one's, and the others have the ports of their addresses" (join ", " $servicePorts)) -}}
{{- end -}}
{{- /* Kubernetes refuses the Service otherwise. */ -}}
{{- $service := .Values.service -}}
{{- if eq $service.type "ClusterIP" -}}
{{- range $key := list "nodePort" "externalTrafficPolicy" -}}
{{- if get $service $key -}}{{- fail (printf "service.%s is set, but a Service of type ClusterIP is not reached from outside: set service.type to NodePort or LoadBalancer" $key) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne $service.type "LoadBalancer" -}}
{{- range $key := list "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if get $service $key -}}{{- fail (printf "service.%s is set, but service.type is %s: set it to LoadBalancer" $key $service.type) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $health := dig "health" "address" "" $config -}}
{{- if not $health -}}
{{- fail "config.health.address is missing: probes need it (0.0.0.0:9902)" -}}
{{- end -}}
{{- if include "gatepost.isLoopback" $health -}}
{{- fail (printf "config.health.address is %s: probes do not reach a loopback address (use 0.0.0.0 or [::])" $health) -}}
{{- end -}}
{{- if has (include "gatepost.port" $health) (list "" "0") -}}
{{- fail (printf "config.health.address is %s: probes need a port that is known" $health) -}}
{{- end -}}
{{- $containerPorts = append $containerPorts (include "gatepost.port" $health) -}}
{{- $containerPorts = append $containerPorts (include "gatepost.port" (include "gatepost.adminAddress" .)) -}}
{{- if ne (len $containerPorts) (len (uniq $containerPorts)) -}}
{{- fail (printf "two addresses of config.listeners, config.health and config.admin have one port (%s)" (join ", " $containerPorts)) -}}
{{- end -}}
{{- if and (not .Values.documents) (not (dig "sources" list ($config.agents | default dict))) (not (kindIs "map" $config.registry)) -}}
{{- fail "there are no agents: set documents, config.agents.sources or config.registry" -}}
{{- end -}}
{{- $files := list -}}
{{- range $file := concat (.Values.secretFiles | default list) (.Values.configMapFiles | default list) -}}
{{- range $path := $file.items -}}{{- $files = append $files $path -}}{{- end -}}
{{- end -}}
{{- range $file := include "gatepost.stateFiles" . | fromJsonArray -}}{{- $files = append $files $file.path -}}{{- end -}}
{{- range $at, $path := $files -}}
{{- range $other := concat (slice $files 0 $at) (list "gatepost.yaml") -}}
{{- if or (eq $path $other) (hasPrefix (printf "%s/" $path) $other) (hasPrefix (printf "%s/" $other) $path) -}}
{{- fail (printf "two files of secretFiles, configMapFiles and state have the path %s below /etc/gatepost/config, or one is the folder of the other (%s): give each file a path of its own" $path $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "gatepost.hasPassword" (list $config .Values.documents) -}}
{{- fail "config or documents have a URL with a password, which a ConfigMap would show to many: put the URL into a Secret, and refer to it as env:NAME or file:PATH" -}}
{{- end -}}
{{- $read := include "gatepost.namespacesOfSources" . | fromJsonArray -}}
{{- if and $read (not .Values.kubernetesSources.enabled) -}}
{{- fail "config.agents.sources has a source of kind kubernetes, but pods have no token: set kubernetesSources.enabled to true, or the credential or kubernetes.service_account of the source" -}}
{{- end -}}
{{- $readable := include "gatepost.readableNamespaces" . | fromJsonArray | sortAlpha -}}
{{- if and $read .Values.kubernetesSources.enabled (ne (toJson $read) (toJson $readable)) -}}
{{- fail (printf "kubernetesSources.namespaces gives the right to read in %s, but the sources of kind kubernetes read in %s (kubernetes.namespaces of each, or the gateway's own): leave the value empty, or name the same namespaces" (join ", " $readable) (join ", " $read)) -}}
{{- end -}}
{{- if and .Values.kubernetesSources.enabled (eq (include "gatepost.serviceAccountName" .) "default") -}}
{{- fail "kubernetesSources.enabled would give every pod of the namespace the gateway's rights, because serviceAccount is the account default: set serviceAccount.create to true, or serviceAccount.name" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts is empty: an Ingress without a host name takes every request of the controller" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs is empty: name the Gateway" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled .Values.monitoring.podMonitor.enabled -}}
{{- fail "monitoring.serviceMonitor and monitoring.podMonitor would count every call twice: enable one of them" -}}
{{- end -}}
{{- if and (or .Values.monitoring.serviceMonitor.enabled .Values.monitoring.podMonitor.enabled) (not $config.health.metrics) -}}
{{- fail "a monitor is enabled, but config.health.metrics is not true: Prometheus would find no metrics" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not (include "gatepost.hasApi" (list . "monitoring.coreos.com/v1"))) -}}
{{- fail "the cluster has no ServiceMonitors: install the operator of Prometheus first, or set monitoring.disableApiCheck" -}}
{{- end -}}
{{- if and (or .Values.monitoring.podMonitor.enabled .Values.monitoring.prometheusRule.enabled) (not (include "gatepost.hasApi" (list . "monitoring.coreos.com/v1"))) -}}
{{- fail "the cluster has no PodMonitors and PrometheusRules: install the operator of Prometheus first, or set monitoring.disableApiCheck" -}}
{{- end -}}
{{- end -}}
