# /// stoilo-case
# idea = "inheritance super"
# run = "task"
# level = "pure"
# ///
class Animal:
    count = 0

    def __init__(self, name):
        self.name = name
        Animal.count += 1

    def speak(self):
        return f"{self.name} makes a sound"

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"


class Dog(Animal):
    def __init__(self, name, tricks=()):
        super().__init__(name)
        self._tricks = list(tricks)

    def speak(self):
        return super().speak() + ": woof"

    def add(self, trick):
        self._tricks.append(trick)
        return self


class Old(Animal):
    def __init__(self, name):
        Animal.__init__(self, name)
        self.__age = 3

    def age(self):
        self.__age += 1
        return self.__age


class Puppy(Dog):
    def __repr__(self):
        return "little " + super().__repr__()


def run(kwargs):
    dog = Puppy("rex", ["sit"]).add("roll")
    old = Old("tom")
    return [
        dog.speak(),
        repr(dog),
        dog._tricks,
        isinstance(dog, Animal),
        issubclass(Puppy, Dog),
        old.age(),
        old.age(),
        Animal.count,
        dog.__class__.__name__,
    ]
