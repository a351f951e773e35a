// What the types of a manifest cannot say: names, references between its parts, enumerations, limits.
//
// In: decoded objects. Out: problems as texts, each with the path of its field. Source: Kubernetes' API reference; names
// and labels are checked by its own library. Only the kinds that this project deploys are known.
package main

import (
	"fmt"
	"path"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// declarations are the objects that others refer to, as "Kind namespace/name".
func declarations(objects []runtime.Object) map[string]bool {
	declared := map[string]bool{}
	for _, object := range objects {
		if accessor, err := meta.Accessor(object); err == nil {
			kind := object.GetObjectKind().GroupVersionKind().Kind
			declared[fmt.Sprintf("%s %s/%s", kind, accessor.GetNamespace(), accessor.GetName())] = true
		}
	}
	return declared
}

func rules(object runtime.Object, declared map[string]bool) (problems []string) {
	say := func(at *field.Path, format string, arguments ...any) {
		problems = append(problems, at.String()+": "+fmt.Sprintf(format, arguments...))
	}
	names := func(at *field.Path, wrong []string) {
		for _, text := range wrong {
			say(at, "%s", text)
		}
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return []string{err.Error()}
	}
	metadata := field.NewPath("metadata")
	names(metadata.Child("name"), validation.IsDNS1123Subdomain(accessor.GetName()))
	for _, wrong := range metavalidation.ValidateLabels(accessor.GetLabels(), metadata.Child("labels")) {
		problems = append(problems, wrong.Error())
	}
	switch object := object.(type) {
	case *corev1.Namespace:
	case *corev1.ServiceAccount, *corev1.ResourceQuota:
		isDeclared(declared, "Namespace", "", accessor.GetNamespace(), metadata.Child("namespace"), say)
	case *appsv1.DaemonSet:
		isDeclared(declared, "Namespace", "", object.Namespace, metadata.Child("namespace"), say)
		daemonSet(&object.Spec, field.NewPath("spec"), say)
		if account := object.Spec.Template.Spec.ServiceAccountName; account != "" {
			at := field.NewPath("spec", "template", "spec", "serviceAccountName")
			isDeclared(declared, "ServiceAccount", object.Namespace, account, at, say)
		}
	default:
		say(field.NewPath("kind"), "no rules for it here; add them")
	}
	return problems
}

type sayer func(at *field.Path, format string, arguments ...any)

func isDeclared(declared map[string]bool, kind, namespace, name string, at *field.Path, say sayer) {
	if !declared[fmt.Sprintf("%s %s/%s", kind, namespace, name)] {
		say(at, "%s %q is not in this file", kind, name)
	}
}

func oneOf[T ~string](value T, at *field.Path, say sayer, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		say(at, "%q is none of %q", value, allowed)
	}
}

func daemonSet(spec *appsv1.DaemonSetSpec, at *field.Path, say sayer) {
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	switch {
	case err != nil:
		say(at.Child("selector"), "%v", err)
	case selector.Empty():
		say(at.Child("selector"), "selects everything")
	case !selector.Matches(labels.Set(spec.Template.Labels)):
		say(at.Child("selector"), "does not select the labels of the template")
	}
	strategy := at.Child("updateStrategy")
	oneOf(spec.UpdateStrategy.Type, strategy.Child("type"), say,
		appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		if _, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, 100, true); err != nil {
			say(strategy.Child("rollingUpdate", "maxUnavailable"), "%v", err)
		}
	}
	pod(&spec.Template.Spec, at.Child("template", "spec"), say)
}

func pod(spec *corev1.PodSpec, at *field.Path, say sayer) {
	oneOf(spec.RestartPolicy, at.Child("restartPolicy"), say, corev1.RestartPolicyAlways)
	oneOf(spec.DNSPolicy, at.Child("dnsPolicy"), say, corev1.DNSClusterFirst,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		say(at.Child("terminationGracePeriodSeconds"), "is below 0")
	}
	for i, toleration := range spec.Tolerations {
		at := at.Child("tolerations").Index(i)
		oneOf(toleration.Operator, at.Child("operator"), say, corev1.TolerationOpExists, corev1.TolerationOpEqual)
		oneOf(toleration.Effect, at.Child("effect"), say, corev1.TaintEffectNoSchedule,
			corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		if toleration.Operator == corev1.TolerationOpExists && toleration.Value != "" {
			say(at.Child("value"), "must be empty where the operator is Exists")
		}
		if toleration.Key == "" && toleration.Operator != corev1.TolerationOpExists {
			say(at.Child("operator"), "must be Exists where there is no key")
		}
	}
	volumes, used := map[string]bool{}, map[string]bool{}
	for i := range spec.Volumes {
		volume, at := &spec.Volumes[i], at.Child("volumes").Index(i)
		if volumes[volume.Name] {
			say(at.Child("name"), "%q is there twice", volume.Name)
		}
		volumes[volume.Name] = true
		source(volume, at, say)
	}
	if len(spec.Containers) == 0 {
		say(at.Child("containers"), "must not be empty")
	}
	all := append(slices.Clone(spec.InitContainers), spec.Containers...)
	seen := map[string]bool{}
	for i := range all {
		container(&all[i], at.Child("containers").Index(i), volumes, used, say)
		if seen[all[i].Name] {
			say(at.Child("containers").Index(i).Child("name"), "%q is there twice", all[i].Name)
		}
		seen[all[i].Name] = true
	}
	for name := range volumes {
		if !used[name] {
			say(at.Child("volumes"), "%q is not mounted anywhere", name)
		}
	}
}

func source(volume *corev1.Volume, at *field.Path, say sayer) {
	for _, wrong := range validation.IsDNS1123Label(volume.Name) {
		say(at.Child("name"), "%s", wrong)
	}
	switch host := volume.HostPath; {
	case host != nil:
		if !path.IsAbs(host.Path) || path.Clean(host.Path) != host.Path {
			say(at.Child("hostPath", "path"), "%q is not a plain absolute path", host.Path)
		}
		if host.Type != nil {
			oneOf(*host.Type, at.Child("hostPath", "type"), say, corev1.HostPathDirectoryOrCreate,
				corev1.HostPathDirectory, corev1.HostPathFileOrCreate, corev1.HostPathFile,
				corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
		}
	case volume.EmptyDir != nil, volume.ConfigMap != nil, volume.Secret != nil:
	default:
		say(at, "has no source that is known here")
	}
}

func container(c *corev1.Container, at *field.Path, volumes, used map[string]bool, say sayer) {
	for _, wrong := range validation.IsDNS1123Label(c.Name) {
		say(at.Child("name"), "%s", wrong)
	}
	if c.Image == "" {
		say(at.Child("image"), "must not be empty")
	}
	oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"), say, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	for i, env := range c.Env {
		at := at.Child("env").Index(i)
		for _, wrong := range validation.IsEnvVarName(env.Name) {
			say(at.Child("name"), "%s", wrong)
		}
		if env.ValueFrom != nil && env.Value != "" {
			say(at, "has both value and valueFrom")
		}
		if env.ValueFrom != nil && env.ValueFrom.FieldRef != nil {
			oneOf(env.ValueFrom.FieldRef.FieldPath, at.Child("valueFrom", "fieldRef", "fieldPath"), say,
				"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
				"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
		}
	}
	paths := map[string]bool{}
	for i, mount := range c.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if !volumes[mount.Name] {
			say(at.Child("name"), "no volume %q", mount.Name)
		}
		used[mount.Name] = true
		if !path.IsAbs(mount.MountPath) || paths[mount.MountPath] {
			say(at.Child("mountPath"), "%q is not absolute, or is there twice", mount.MountPath)
		}
		paths[mount.MountPath] = true
		if mount.MountPropagation != nil {
			oneOf(*mount.MountPropagation, at.Child("mountPropagation"), say, corev1.MountPropagationNone,
				corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
		}
	}
	for name, request := range c.Resources.Requests {
		if limit, limited := c.Resources.Limits[name]; limited && limit.Cmp(request) < 0 {
			say(at.Child("resources", "requests"), "%s: more than the limit", name)
		}
	}
	if security := c.SecurityContext; security != nil && security.Privileged != nil && *security.Privileged &&
		security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation {
		say(at.Child("securityContext"), "privileged, but privileges may not be gained")
	}
}
