{{- define "aep-wrap.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "aep-wrap.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "aep-wrap.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "aep-wrap.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects pods: a part's labels never change. */}}
{{- define "aep-wrap.selector" -}}
app.kubernetes.io/name: {{ include "aep-wrap.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "aep-wrap.labels" -}}
{{ include "aep-wrap.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "aep-wrap.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Where events go; empty where there is no collector. */}}
{{- define "aep-wrap.collectorURL" -}}
{{- if .Values.collector.url -}}
{{ .Values.collector.url }}
{{- else if .Values.collector.enabled -}}
{{- if .Values.collector.tlsSecret -}}
https://{{ include "aep-wrap.fullname" . }}-collector.{{ .Release.Namespace }}.svc:{{ .Values.collector.port }}
{{- else -}}
http://{{ include "aep-wrap.fullname" . }}-collector:{{ .Values.collector.port }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "aep-wrap.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.uid }}
runAsGroup: {{ int64 .Values.gid }}
# The volumes belong to this group, and what is made in them too.
fsGroup: {{ int64 .Values.gid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "aep-wrap.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The settings that a sidecar and an entrypoint have alike. */}}
{{- define "aep-wrap.env" -}}
- {name: AEP_LOG_DIR, value: /var/lib/aep/logs}
- {name: AEP_CAPTURE, value: {{ .Values.capture }}}
{{- with .Values.captureFor }}
{{- $list := list }}
{{- range $category, $level := . }}{{ $list = append $list (printf "%s=%s" $category $level) }}{{ end }}
- {name: AEP_CAPTURE_FOR, value: {{ join "," $list | quote }}}
{{- end }}
{{- with include "aep-wrap.collectorURL" . }}
- {name: AEP_COLLECTOR, value: {{ . | quote }}}
- {name: AEP_TOKEN_FILE, value: /run/secrets/aep/token}
{{- if hasPrefix "http://" . }}
- {name: AEP_PLAIN_HTTP, value: "true"}
{{- end }}
{{- else }}
- {name: AEP_LISTEN, value: "off"}
{{- end }}
{{- with .Values.agent.name }}
- {name: AEP_AGENT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.sidecar.hold }}
- {name: AEP_HOLD, value: {{ . | quote }}}
{{- end }}
{{- with .Values.sidecar.gate }}
- {name: AEP_GATE, value: {{ join "," . | quote }}}
{{- end }}
{{- end -}}

{{/* How much session logs may take: three quarters of an emptyDir, for a pod that
fills it is evicted. Of a claim's size we know nothing. */}}
{{- define "aep-wrap.keep" -}}
{{- $unit := regexFind "[A-Za-z]+$" .Values.spool.size -}}
{{- $mebibytes := get (dict "Mi" 1.0 "Gi" 1024.0 "Ti" 1048576.0 "M" 0.9536 "G" 953.67 "T" 953674.3) $unit -}}
{{- if and $mebibytes (not .Values.spool.existingClaim) -}}
{{- printf "%dMiB" (mulf $mebibytes (trimSuffix $unit .Values.spool.size) 0.75 | int64) -}}
{{- end -}}
{{- end -}}

{{/* Puts the hook script, and the binaries, onto a volume of the agent's. */}}
{{- define "aep-wrap.tools" -}}
name: aep-tools
image: {{ include "aep-wrap.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [unpack, /opt/aep]
securityContext:
  {{- include "aep-wrap.security" . | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 16Mi}
  limits: {memory: 64Mi}
volumeMounts:
  - {name: aep-tools, mountPath: /opt/aep}
{{- end -}}

{{/* The native sidecar. A chart of yours that has this one as a dependency
includes it among its init containers, after aep-wrap.tools. */}}
{{- define "aep-wrap.sidecar" -}}
name: aep-wrap
image: {{ include "aep-wrap.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# With this an init container is a sidecar: it stays, the next container starts
# when its startup probe has succeeded, it ends after the agent, and a Job does
# not wait for it.
restartPolicy: Always
args:
  - serve
  - --hooks=/var/run/aep/hooks
  - --health-listen=0.0.0.0:{{ .Values.sidecar.healthPort }}
  - --drain={{ .Values.sidecar.drain }}
  {{- range .Values.sidecar.extraArgs }}
  - {{ . | quote }}
  {{- end }}
  {{- range .Values.agent.logs }}
  - {{ printf "%s/%s" $.Values.agent.home . }}
  {{- end }}
env:
  - {name: HOME, value: /var/lib/aep}
  {{- include "aep-wrap.env" . | nindent 2 }}
  {{- with include "aep-wrap.keep" . }}
  - {name: AEP_KEEP_SIZE, value: {{ . }}}
  {{- end }}
  {{- with .Values.sidecar.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: aep-health, containerPort: {{ .Values.sidecar.healthPort }}}
startupProbe:
  httpGet: {path: /readyz, port: aep-health}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: aep-health}
  periodSeconds: 10
livenessProbe:
  httpGet: {path: /healthz, port: aep-health}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
securityContext:
  {{- with .Values.sidecar.uid }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- include "aep-wrap.security" . | nindent 2 }}
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
volumeMounts:
  - {name: aep-hooks, mountPath: /var/run/aep/hooks}
  - {name: aep-spool, mountPath: /var/lib/aep}
  {{- if .Values.agent.logs }}
  - {name: agent-home, mountPath: {{ .Values.agent.home }}, readOnly: true}
  {{- end }}
  {{- if include "aep-wrap.collectorURL" . }}
  - {name: aep-token, mountPath: /run/secrets/aep, readOnly: true}
  {{- end }}
{{- end -}}

{{- define "aep-wrap.agent" -}}
{{- $wrapped := eq .Values.agent.mode "entrypoint" -}}
{{- $example := not (or .Values.agent.command .Values.agent.args) -}}
name: agent
image: {{ .Values.agent.image }}
imagePullPolicy: {{ .Values.agent.pullPolicy }}
workingDir: {{ .Values.agent.workingDir }}
{{- if $wrapped }}
{{- if and .Values.agent.args (not .Values.agent.command) }}
{{- fail "agent.mode entrypoint wants agent.command: aep-wrap starts it, and does not know the image's own" }}
{{- end }}
# PID 1: it reaps, hands signals on, and ends with the agent's exit code.
command: [/opt/aep/aep-wrap, --]
args:
  {{- if $example }}
  - /bin/sh
  - -c
  - echo working; sleep 2; exit 0
  {{- else }}
  {{- toYaml (concat .Values.agent.command .Values.agent.args) | nindent 2 }}
  {{- end }}
{{- else if $example }}
command: [/bin/sh, /opt/example/agent.sh]
{{- else }}
{{- with .Values.agent.command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.agent.args }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
env:
  - {name: HOME, value: {{ .Values.agent.home }}}
  {{- if $wrapped }}
  {{- include "aep-wrap.env" . | nindent 2 }}
  {{- else }}
  - {name: AEP_HOOK_DIR, value: /var/run/aep/hooks}
  - {name: AEP_PERMISSION_WAIT, value: {{ .Values.sidecar.hookWait | int64 | quote }}}
  {{- end }}
  {{- with .Values.agent.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.agent.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: {{ .Values.agent.readOnlyRootFilesystem }}
  capabilities: {drop: [ALL]}
resources:
  {{- toYaml .Values.agent.resources | nindent 2 }}
volumeMounts:
  - {name: agent-home, mountPath: {{ .Values.agent.home }}}
  - {name: tmp, mountPath: /tmp}
  - {name: aep-tools, mountPath: /opt/aep, readOnly: true}
  {{- if $wrapped }}
  - {name: aep-spool, mountPath: /var/lib/aep}
  {{- if include "aep-wrap.collectorURL" . }}
  - {name: aep-token, mountPath: /run/secrets/aep, readOnly: true}
  {{- end }}
  {{- else }}
  - {name: aep-hooks, mountPath: /var/run/aep/hooks}
  {{- if $example }}
  - {name: example, mountPath: /opt/example, readOnly: true}
  {{- end }}
  {{- end }}
  {{- with .Values.agent.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "aep-wrap.agentPod" -}}
metadata:
  labels:
    {{- include "aep-wrap.labels" (dict "root" . "component" "agent") | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq .Values.agent.kind "Job" }}
  restartPolicy: Never
  {{- end }}
  # The agent needs no word with the API server.
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Longer than --drain: the agent ends first, then the sidecar sends the rest.
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "aep-wrap.podSecurity" . | nindent 4 }}
  initContainers:
    -
      {{- include "aep-wrap.tools" . | nindent 6 }}
    {{- if eq .Values.agent.mode "sidecar" }}
    -
      {{- include "aep-wrap.sidecar" . | nindent 6 }}
    {{- end }}
  containers:
    -
      {{- include "aep-wrap.agent" . | nindent 6 }}
  volumes:
    - name: agent-home
      emptyDir: {sizeLimit: {{ .Values.agent.homeSize }}}
    - name: tmp
      emptyDir: {sizeLimit: 256Mi}
    - name: aep-tools
      emptyDir: {sizeLimit: 128Mi}
    - name: aep-spool
      {{- if .Values.spool.existingClaim }}
      persistentVolumeClaim: {claimName: {{ .Values.spool.existingClaim }}}
      {{- else }}
      emptyDir: {sizeLimit: {{ .Values.spool.size }}}
      {{- end }}
    {{- if eq .Values.agent.mode "sidecar" }}
    - name: aep-hooks
      emptyDir: {sizeLimit: {{ .Values.hooks.size }}}
    {{- if not (or .Values.agent.command .Values.agent.args) }}
    - name: example
      configMap: {name: {{ include "aep-wrap.fullname" . }}-example}
    {{- end }}
    {{- end }}
    {{- if include "aep-wrap.collectorURL" . }}
    - name: aep-token
      secret:
        secretName: {{ .Values.token.existingSecret }}
        defaultMode: 0440
        items:
          - {key: {{ .Values.token.key }}, path: token}
    {{- end }}
    {{- with .Values.agent.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "aep-wrap.check" -}}
{{- $drain := trimSuffix "s" .Values.sidecar.drain | int -}}
{{- if le (int .Values.terminationGracePeriodSeconds) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be more than sidecar.drain (%s)" (int .Values.terminationGracePeriodSeconds) .Values.sidecar.drain) -}}
{{- end -}}
{{- if and (hasPrefix "http://" .Values.collector.url) (not .Values.collector.plainHTTP) -}}
{{- fail "collector.url: the token would cross a network without TLS: give an https:// address, or collector.plainHTTP: true where that network is trusted" -}}
{{- end -}}
{{- if and .Values.agent.logs .Values.sidecar.uid (ne (int64 .Values.sidecar.uid) (int64 .Values.uid)) -}}
{{- fail "agent.logs: runtimes write session logs for their own user alone: leave sidecar.uid empty, or uid the same" -}}
{{- end -}}
{{- if and .Values.agent.logs (eq .Values.agent.mode "entrypoint") -}}
{{- fail "agent.logs is for agent.mode sidecar: a wrapper finds the logs of what it starts" -}}
{{- end -}}
{{- end -}}
