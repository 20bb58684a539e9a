{{/* Containers of the pod: the service's, and with `standalone` Envoy's. */}}

{{- define "isotherm.serviceContainer" -}}
{{- $isStandalone := eq .Values.gateway.provider "standalone" -}}
- name: isotherm
  image: {{ include "isotherm.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - serve
    - --config=/etc/isotherm/isotherm.yaml
    - --log={{ .Values.log }}
    {{- with .Values.extraArgs }}{{ toYaml . | nindent 4 }}{{ end }}
  env:
    # The address that is this service's own among its siblings'.
    - name: POD_IP
      valueFrom: { fieldRef: { fieldPath: status.podIP } }
    {{- with .Values.extraEnv }}{{ toYaml . | nindent 4 }}{{ end }}
  ports:
    {{- if .Values.plaintext }}
    - { name: grpc-ext-proc, containerPort: 9002 }
    {{- end }}
    {{- if .Values.tls.enabled }}
    - { name: grpc-tls, containerPort: {{ .Values.tls.port }} }
    {{- end }}
    - { name: grpc-health, containerPort: 9003 }
    {{- if .Values.siblings.enabled }}
    - { name: tls-siblings, containerPort: 9004 }
    {{- end }}
    {{- if .Values.scaling.keda }}
    - { name: grpc-keda, containerPort: 9005 }
    {{- end }}
    - { name: http-admin, containerPort: 9090 }
    - { name: http-metrics, containerPort: 9091 }
  {{- if $isStandalone }}
  # A sidecar in Kubernetes' sense: it starts before Envoy, which waits until the service knows its replicas, and stops after
  # it. A readiness probe would take the pod out of the Service while the service restarts, although Envoy serves requests.
  restartPolicy: Always
  {{- end }}
  startupProbe:
    grpc: { port: 9003, service: {{ ternary "readiness" "liveness" $isStandalone }} }
    periodSeconds: 1
    failureThreshold: {{ ternary 600 60 $isStandalone }}
  livenessProbe:
    grpc: { port: 9003, service: liveness }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  {{- if not $isStandalone }}
  readinessProbe:
    grpc: { port: 9003, service: readiness }
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  {{- end }}
  {{- if and .Values.preStopSleepSeconds (not $isStandalone) }}
  lifecycle:
    preStop:
      sleep: { seconds: {{ .Values.preStopSleepSeconds }} }
  {{- end }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - { name: config, mountPath: /etc/isotherm, readOnly: true }
    {{- if .Values.siblings.enabled }}
    - { name: siblings, mountPath: /etc/isotherm-siblings, readOnly: true }
    {{- end }}
    {{- if and .Values.tls.enabled .Values.tls.secretName }}
    - { name: tls, mountPath: /etc/isotherm-tls, readOnly: true }
    {{- end }}
    {{- if .Values.admin.tokenSecret.name }}
    - { name: admin, mountPath: /etc/isotherm-admin, readOnly: true }
    {{- end }}
    {{- if .Values.scaling.stateVolume }}
    - { name: state, mountPath: /var/lib/isotherm }
    {{- end }}
    {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}

{{/* Writes Envoy's configuration from the pools of the service's. */}}
{{- define "isotherm.envoyConfiguration" -}}
- name: envoy-configuration
  image: {{ include "isotherm.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - envoy
    - new
    - --config=/etc/isotherm/isotherm.yaml
    - --filter=/filter/plugin.wasm
    - --listen={{ .Values.bindAddress }}:10000
    - --output=/etc/envoy/envoy.yaml
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - { name: config, mountPath: /etc/isotherm, readOnly: true }
    - { name: envoy, mountPath: /etc/envoy }
{{- end -}}

{{- define "isotherm.envoyContainer" -}}
- name: envoy
  image: {{ .Values.standalone.image | quote }}
  # Without a number, Envoy starts a worker with a filter of its own for each processor of the node.
  args:
    - -c
    - /etc/envoy/envoy.yaml
    - --concurrency
    - {{ .Values.standalone.concurrency | quote }}
    # Two pages of Envoy's admin interface, whose others can stop it.
    - --config-yaml
    - |
      {{- include "isotherm.envoyPages" . | nindent 6 }}
  ports:
    - { name: http, containerPort: 10000 }
    - { name: http-envoy, containerPort: 19001 }
  readinessProbe:
    httpGet: { path: /ready, port: http-envoy }
    periodSeconds: 2
  # Envoy ends at once at SIGTERM. This lets running answers end first.
  lifecycle:
    preStop:
      exec: { command: [/program/isotherm, drain-envoy, --admin, "127.0.0.1:9901", --wait-s, {{ .Values.drainSeconds | quote }}] }
  resources: {{- toYaml .Values.standalone.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - { name: envoy, mountPath: /etc/envoy, readOnly: true }
    {{- if .Values.standalone.imageVolumes }}
    - { name: filter, mountPath: /filter, readOnly: true }
    - { name: program, mountPath: /program, readOnly: true }
    {{- end }}
{{- end -}}

{{/* A listener for probes and Prometheus, which Envoy adds to its configuration. */}}
{{- define "isotherm.envoyPages" -}}
static_resources:
  listeners:
    - name: pages
      address: { socket_address: { address: {{ ternary "::" .Values.bindAddress (eq .Values.bindAddress "[::]") | quote }}, port_value: 19001 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: pages
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: pages
                      domains: ["*"]
                      routes:
                        - { match: { path: /ready }, route: { cluster: pages } }
                        - { match: { path: /stats/prometheus }, route: { cluster: pages } }
  clusters:
    - name: pages
      type: STATIC
      load_assignment:
        cluster_name: pages
        endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } } }] }]
{{- end -}}

{{/* The volumes of Envoy: its configuration, and the images of the filter and of the program as files. */}}
{{- define "isotherm.envoyVolumes" -}}
- name: envoy
  {{- if .Values.standalone.configMap }}
  configMap: { name: {{ .Values.standalone.configMap }} }
  {{- else }}
  emptyDir: { sizeLimit: 1Mi }
  {{- end }}
{{- if .Values.standalone.imageVolumes }}
- name: filter
  image: { reference: {{ include "isotherm.filterImage" . | quote }}, pullPolicy: {{ .Values.image.pullPolicy }} }
- name: program
  image: { reference: {{ include "isotherm.image" . | quote }}, pullPolicy: {{ .Values.image.pullPolicy }} }
{{- end }}
{{- end -}}
