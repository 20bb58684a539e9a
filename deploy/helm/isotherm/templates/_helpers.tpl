{{/* The name of every object. */}}
{{- define "isotherm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "isotherm.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isotherm.labels" -}}
{{ include "isotherm.selector" . }}
{{ include "isotherm.commonLabels" . }}
{{- end -}}

{{/* The pods of batch work, which no Service of the picker may select. */}}
{{- define "isotherm.batchSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 57 | trimSuffix "-" }}-batch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isotherm.batchLabels" -}}
{{ include "isotherm.batchSelector" . }}
{{ include "isotherm.commonLabels" . }}
{{- end -}}

{{- define "isotherm.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "isotherm.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "isotherm.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "isotherm.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "isotherm.siblingSecret" -}}
{{- if eq .Values.siblings.certificate.source "secret" -}}
{{- required "siblings.certificate.secretName must name a Secret with tls.crt, tls.key and ca.crt" .Values.siblings.certificate.secretName -}}
{{- else -}}
{{- default (printf "%s-siblings" (include "isotherm.fullname" .)) .Values.siblings.certificate.secretName -}}
{{- end -}}
{{- end -}}

{{/* The pools, with the default one where none is given. */}}
{{- define "isotherm.pools" -}}
{{- $pools := .Values.pools -}}
{{- if not $pools -}}
{{- $kubernetes := dict "inference_pool" .Values.inferencePool.name -}}
{{- if include "isotherm.isService" . -}}
{{- $kubernetes = dict "service" .Values.engines.service "ports" (list .Values.engines.port) -}}
{{- end -}}
{{- $pools = list (dict "model" "*" "replicas" (dict "kubernetes" $kubernetes)) -}}
{{- end -}}
{{- dict "pools" $pools | toYaml -}}
{{- end -}}

{{/* The namespaces that the service reads: the release's, and each that a pool names. */}}
{{- define "isotherm.namespaces" -}}
{{- $namespaces := list -}}
{{- range (include "isotherm.pools" . | fromYaml).pools -}}
{{- with (.replicas | default dict).kubernetes -}}
{{- $namespaces = append $namespaces (.namespace | default $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if .Values.siblings.enabled -}}
{{- $namespaces = append $namespaces .Release.Namespace -}}
{{- end -}}
{{- dict "namespaces" ($namespaces | uniq | sortAlpha) | toYaml -}}
{{- end -}}

{{/* Stops with the reason where values contradict each other: what they ask for would be off in silence. */}}
{{- define "isotherm.validate" -}}
{{- include "isotherm.validateGateway" . -}}
{{- $tls := .Values.tls -}}
{{- if and (not .Values.plaintext) (not $tls.enabled) (ne .Values.gateway.provider "standalone") -}}
{{- fail "plaintext is false and tls.enabled is false: no gateway could reach the service. Set tls.enabled=true, or plaintext=true." -}}
{{- end -}}
{{- if and $tls.secretName (not $tls.enabled) -}}
{{- fail "tls.secretName has no effect without tls.enabled. Set tls.enabled=true, or leave tls.secretName empty." -}}
{{- end -}}
{{- if and $tls.verifyClients (not (and $tls.enabled $tls.secretName)) -}}
{{- fail "tls.verifyClients needs tls.enabled=true and tls.secretName: a Secret whose ca.crt has signed the certificates of the gateways." -}}
{{- end -}}
{{- if and $tls.verifyClients .Values.plaintext -}}
{{- fail "tls.verifyClients has no effect while plaintext is true: a client without a certificate uses port 9002. Set plaintext=false." -}}
{{- end -}}
{{- $ports := list -}}
{{- if .Values.plaintext -}}{{- $ports = append $ports 9002 -}}{{- end -}}
{{- if $tls.enabled -}}{{- $ports = append $ports (int $tls.port) -}}{{- end -}}
{{- if and .Values.inferencePool.create (not (has (int .Values.inferencePool.pickerPort) $ports)) -}}
{{- fail (printf "inferencePool.pickerPort is %v, and gateways reach the service at %s. Set inferencePool.pickerPort to a port of the service." .Values.inferencePool.pickerPort (join " or " $ports)) -}}
{{- end -}}
{{- end -}}

{{/* Stops where a value has no effect with the provider, or the provider cannot work with it. */}}
{{- define "isotherm.validateGateway" -}}
{{- $provider := .Values.gateway.provider -}}
{{- if and (eq $provider "standalone") (or .Values.gateway.create .Values.route.create .Values.plaintext .Values.tls.enabled .Values.inferencePool.create) -}}
{{- fail "gateway.create, route.create, plaintext, tls.enabled and inferencePool.create have no effect with gateway.provider=standalone: Envoy is in the pod. Leave them out." -}}
{{- end -}}
{{- if and (eq $provider "standalone") .Values.filter.config -}}
{{- fail "filter.config has no effect with gateway.provider=standalone. Write the filter's configuration into envoy.yaml, and name its ConfigMap in standalone.configMap." -}}
{{- end -}}
{{- if and .Values.filter.pullSecret (not (has $provider (list "envoy-gateway" "ai-gateway"))) -}}
{{- fail "filter.pullSecret has an effect with envoy-gateway and ai-gateway only. Give Istio's agents the credentials (docs/mesh/istio.md); with standalone set imagePullSecrets." -}}
{{- end -}}
{{- if and (not .Values.plaintext) (has $provider (list "istio" "istio-service" "envoy-gateway")) -}}
{{- fail (printf "gateway.provider=%s calls the service without TLS of its own. Set plaintext=true, and let the mesh encrypt." $provider) -}}
{{- end -}}
{{- end -}}

{{/* Stops where batch work lacks something, or its replicas do not fit its database. */}}
{{- define "isotherm.validateBatch" -}}
{{- $batch := .Values.batch -}}
{{- if not (and $batch.url $batch.keysSecret.name) -}}
{{- fail "batch.enabled needs batch.url, the address of Envoy, and batch.keysSecret.name, a Secret with the keys of clients." -}}
{{- end -}}
{{- if not $batch.serve.replicas -}}
{{- fail "batch.serve.replicas is 0: no pod would serve the batch API. Set it to 1 or more." -}}
{{- end -}}
{{- if and (not $batch.database.postgresSecret.name) (or (gt (int $batch.serve.replicas) 1) $batch.work.replicas) -}}
{{- fail "SQLite serves one pod: set batch.serve.replicas=1 and batch.work.replicas=0, or name a Secret in batch.database.postgresSecret.name." -}}
{{- end -}}
{{- end -}}

{{/* The part of the configuration that a running service cannot change: its listeners and its region. */}}
{{- define "isotherm.listeners" -}}
{{- if .Values.plaintext }}
listen: [{{ printf "%s:9002" .Values.bindAddress | quote }}]
plaintext: true
{{- else }}
listen: ["127.0.0.1:9002"]
{{- end }}
health_listen: {{ printf "%s:9003" .Values.bindAddress | quote }}
{{- if .Values.tls.enabled }}
tls:
  listen: [{{ printf "%s:%v" .Values.bindAddress .Values.tls.port | quote }}]
  {{- if .Values.tls.secretName }}
  certificate: /etc/isotherm-tls/tls.crt
  key: /etc/isotherm-tls/tls.key
  {{- if .Values.tls.verifyClients }}
  client_ca: /etc/isotherm-tls/ca.crt
  {{- end }}
  {{- end }}
{{- end }}
admin:
  metrics_listen: {{ printf "%s:9091" .Values.bindAddress | quote }}
  {{- if not .Values.admin.tokenSecret.name }}
  listen: "127.0.0.1:9090"
  {{- else }}
  listen: {{ printf "%s:9090" .Values.bindAddress | quote }}
  token_file: /etc/isotherm-admin/token
  {{- end }}
{{- if or .Values.scaling.keda .Values.scaling.stateVolume }}
scaling:
  {{- if .Values.scaling.keda }}
  keda_listen: {{ printf "%s:9005" .Values.bindAddress | quote }}
  {{- end }}
  {{- if .Values.scaling.stateVolume }}
  state_file: /var/lib/isotherm/scaling.json
  {{- end }}
{{- end }}
drain_ms_max: {{ mul .Values.drainSeconds 1000 }}
ext_proc:
  trusted_headers: {{ .Values.extProc.trustedHeaders }}
  mode_override: {{ .Values.extProc.modeOverride }}
  {{- with .Values.extProc.endpointsMax }}
  endpoints_max: {{ . }}
  {{- end }}
  {{- with .Values.extProc.heldBytesMax }}
  held_bytes_max: {{ int64 . }}
  {{- end }}
{{- if .Values.siblings.enabled }}
region:
  name: {{ .Values.siblings.region }}
  listen: {{ printf "%s:9004" .Values.bindAddress | quote }}
  siblings_service: {{ include "isotherm.fullname" . }}-siblings
  tls:
    certificate: /etc/isotherm-siblings/tls.crt
    key: /etc/isotherm-siblings/tls.key
    ca: /etc/isotherm-siblings/ca.crt
{{- end }}
{{- end -}}

{{/* The whole configuration. */}}
{{- define "isotherm.config" -}}
{{- $written := include "isotherm.listeners" . | fromYaml -}}
{{- $pools := include "isotherm.pools" . | fromYaml -}}
{{- mergeOverwrite $written $pools (deepCopy .Values.config) | toYaml -}}
{{- end -}}
