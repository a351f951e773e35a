// manifest-check says what a Kubernetes API server would refuse in manifests.
//
// In: files of YAML documents. Out: a line per problem, `FILE: document N (Kind name): problem`; status 1 if there is one.
// The documents are decoded into Kubernetes' own types by its own strict decoder, as the API server does it under
// `fieldValidation: Strict`: unknown and repeated keys, wrong types and malformed quantities are refused. What types
// cannot say (references, enumerations, limits) is checked in rules.go. What can go wrong: rules that only a live
// server has (admission, quotas) are not known here.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: manifest-check FILE…")
		os.Exit(64)
	}
	status := 0
	for _, file := range os.Args[1:] {
		for _, problem := range check(file) {
			fmt.Printf("%s: %s\n", file, problem)
			status = 1
		}
	}
	os.Exit(status)
}

// check reads all documents first, since one may refer to another.
func check(file string) (problems []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return []string{err.Error()}
	}
	var objects []runtime.Object
	var places []string
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	decoder := strictDecoder()
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return append(problems, fmt.Sprintf("document %d: %v", number, err))
		}
		object, _, err := decoder.Decode(document, nil, nil)
		place := fmt.Sprintf("document %d", number)
		if object != nil {
			place = fmt.Sprintf("document %d (%s)", number, nameOf(object))
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", place, err))
			continue
		}
		objects, places = append(objects, object), append(places, place)
	}
	if len(objects) == 0 && len(problems) == 0 {
		return []string{"no document in it"}
	}
	declared := declarations(objects)
	for i, object := range objects {
		for _, problem := range rules(object, declared) {
			problems = append(problems, fmt.Sprintf("%s: %s", places[i], problem))
		}
	}
	return problems
}

func strictDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the tables of the library itself
		}
	}
	return json.NewSerializerWithOptions(
		json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}

func nameOf(object runtime.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if accessor, err := meta.Accessor(object); err == nil {
		return kind + " " + accessor.GetName()
	}
	return kind
}
