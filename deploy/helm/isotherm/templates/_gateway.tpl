{{/* Presets of gateways, and the parts that several of them share. */}}

{{/*
What each provider sets where a value is null. A service through which answers pass drains as long as an answer may take.
*/}}
{{- define "isotherm.presets" -}}
{{- $gateway := .Values.gateway -}}
{{- $namespace := include "isotherm.gatewayNamespace" . -}}
{{- $istio := dict "gateway.networking.k8s.io/gateway-name" $gateway.name -}}
{{- $envoy := dict "gateway.envoyproxy.io/owning-gateway-name" $gateway.name "gateway.envoyproxy.io/owning-gateway-namespace" $namespace -}}
{{- $picker := ternary .Values.tls.port 9002 (eq (toString .Values.tls.enabled) "true") -}}
none: &whole-bodies
  plaintext: true
  replicaCount: 2
  drainSeconds: 300
  tls: { enabled: false }
  siblings: { enabled: true }
  extProc: { endpointsMax: 1, trustedHeaders: auto }
  inferencePool: { annotations: {}, failureMode: FailOpen, pickerPort: {{ $picker }} }
  # Pods that a controller made for any Gateway: the labels of Gateway API (GEP-1762) and of Envoy Gateway.
  networkPolicy:
    gateways:
      {{- range list "gateway.networking.k8s.io/gateway-name" "gateway.envoyproxy.io/owning-gateway-name" }}
      - { namespaceSelector: {}, podSelector: { matchExpressions: [{ key: {{ . }}, operator: Exists }] } }
      {{- end }}
envoy-gateway:
  <<: *whole-bodies
  gateway: { className: eg }
  networkPolicy: { gateways: [{ namespaceSelector: {}, podSelector: { matchLabels: {{ toJson $envoy }} } }] }
istio: &headers-only
  <<: *whole-bodies
  drainSeconds: 30
  gateway: { className: istio }
  extProc: { endpointsMax: 2, trustedHeaders: auto }
  networkPolicy:
    gateways: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ $namespace }} } }, podSelector: { matchLabels: {{ toJson $istio }} } }]
istio-service:
  <<: *headers-only
ai-gateway:
  # Of a request the headers come first, of an answer everything does.
  <<: *whole-bodies
  gateway: { className: envoy-ai-gateway }
  # The gateway speaks TLS to an endpoint picker, and does not verify the certificate.
  plaintext: false
  tls: { enabled: true }
  # The filter stands in front of every request. By default the service believes no headers of a gateway that sends bodies.
  extProc: { endpointsMax: 1, trustedHeaders: always }
  inferencePool:
    pickerPort: {{ .Values.tls.port }}
    # The gateway fails closed in any case (envoyproxy/ai-gateway#2502).
    failureMode: FailClose
    # The headers come first and wait for an answer: with a fingerprint the service takes the body off the plan, without one it
    # reads the body. The override also lets responses stream, which this mode would hold until their end.
    annotations:
      aigateway.envoyproxy.io/processing-body-mode: buffered
      aigateway.envoyproxy.io/allow-mode-override: "true"
  networkPolicy: { gateways: [{ namespaceSelector: {}, podSelector: { matchLabels: {{ toJson $envoy }} } }] }
standalone:
  <<: *headers-only
  # Services in several pods do not know of each other's requests: a service with siblings refuses decision streams.
  plaintext: false
  replicaCount: 1
  drainSeconds: 300
  siblings: { enabled: false }
  networkPolicy: { gateways: [] }
{{- end -}}

{{/* Puts the preset into each value that is null. Every template begins with it. */}}
{{- define "isotherm.preset" -}}
{{- $preset := index (include "isotherm.presets" . | fromYaml) .Values.gateway.provider -}}
{{- range $name, $preset := $preset -}}
{{- if not (kindIs "map" $preset) -}}
{{- if kindIs "invalid" (index $.Values $name) -}}{{- $_ := set $.Values $name $preset -}}{{- end -}}
{{- else -}}
{{- $section := index $.Values $name -}}
{{- range $key, $value := $preset -}}
{{- if kindIs "invalid" (index $section $key) -}}{{- $_ := set $section $key $value -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The namespace of the Gateway. */}}
{{- define "isotherm.gatewayNamespace" -}}
{{- default .Release.Namespace .Values.gateway.namespace -}}
{{- end -}}

{{/* Whether requests go to a Service of engines instead of an InferencePool: "true" or nothing. */}}
{{- define "isotherm.isService" -}}
{{- if has .Values.gateway.provider (list "istio-service" "envoy-gateway" "standalone") -}}true{{- end -}}
{{- end -}}

{{/* The image of the filter, without a scheme. */}}
{{- define "isotherm.filterImage" -}}
{{- $image := default (printf "%s-filter" .Values.image.repository) .Values.filter.image -}}
{{- if .Values.filter.digest -}}
{{- printf "%s@%s" $image .Values.filter.digest -}}
{{- else -}}
{{- printf "%s:%s" $image (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/*
The configuration of the filter's request role, as JSON. The limit of bodies is 1 MiB above `buffer_bytes_max`, since one read
may bring that much; where the service reads what the filter cannot, it is as long as the longest body.
*/}}
{{- define "isotherm.filterConfig" -}}
{{- $limit := ternary 33554432 4194304 (eq .Values.gateway.provider "ai-gateway") -}}
{{- $own := dict "role" "request" "buffer_bytes_max" 3145728 "request_body_buffer_limit" $limit -}}
{{- mergeOverwrite $own (deepCopy .Values.filter.config) | toJson -}}
{{- end -}}

{{/* The variable of the gateway's environment that has the secret of session keys, if the filter's configuration names one. */}}
{{- define "isotherm.secretVariable" -}}
{{- $secret := (include "isotherm.filterConfig" . | fromJson).session_secret -}}
{{- if kindIs "map" $secret -}}{{- $secret.env -}}{{- end -}}
{{- end -}}

{{/* The limit of bodies that Envoy and the filter share. */}}
{{- define "isotherm.bodyLimit" -}}
{{- (include "isotherm.filterConfig" . | fromJson).request_body_buffer_limit | int64 -}}
{{- end -}}

{{/* Names and prefixes of headers that clients must never set. The filter reads x-llm-d-slo-ttft-ms of a client. */}}
{{- define "isotherm.forbiddenHeaders" -}}
names: [x-gateway-destination-endpoint, x-gateway-destination-endpoint-served, x-dp-rank, x-request-priority, x-worker-instance-id]
prefixes: [x-isotherm-, x-data-parallel-, x-dynamo-, x-encoder-hosts-, x-kv-cache-source-, x-override-, x-prefill, x-sgl, x-smg-, x-vllm-]
expression: x-llm-d-([^s].*|s[^l].*|sl[^o].*|slo[^-].*)
{{- end -}}

{{/* The paths of the route as one expression. */}}
{{- define "isotherm.pathExpression" -}}
{{- $paths := list "/v1/(chat/completions|completions|embeddings|messages|messages/count_tokens)" "/v1/(responses|models)(/.*)?" "/health" -}}
{{- range .Values.route.extraPaths -}}{{- $paths = append $paths (regexQuoteMeta .) -}}{{- end -}}
{{- join "|" $paths -}}
{{- end -}}
