"""Words as they are most often misspelt in English, or with their accents; none is another word. Data only."""

from __future__ import annotations

__all__ = ["SLIPS"]

_listed = str.split  # lists of words read better as text

SLIPS = {
    slip: word
    for word, *slips in map(
        str.split,
        _listed(
            """accommodation accomodation, account acount accout, address adress addres, appointment appointement
        apointment, argument arguement, available availible availble avaliable, because becuase becasue
        beacuse, beginning begining, believe beleive, business buisness bussiness busines, calendar
        calender, cancel cancle, capital captial, certificate certficate, completely completly, computer
        computor, database datbase, definitely definately definitly, definition definiton, delivery delivary
        delievery, different diffrent diferent, difference diffrence, directory directry, disappear
        dissapear, email emial, embarrassing embarassing, environment enviroment, example exmaple, exercise
        excercise, existence existance, experience experiance, favorite favourate, february febuary, finally
        finaly, foreign foriegn, friend freind, function funtion fucntion, government goverment, grammar
        grammer, guarantee garantee gaurantee, height heigth hieght, immediately immediatly, independent
        independant, insurance insurence, interest intrest, internet interent, invoice invocie, january
        janurary, knowledge knowlege, language langauge, library libary, license lisence, maintenance
        maintenence maintainance, maximum maximun, necessary neccessary necesary, nearest nearset, occurred
        occured, occurrence occurence, package pacakge, parcel parcle, password pasword passowrd passwrod,
        payment payement paymnet, permanent permanant, phone phoen, possible posible, privilege privelege,
        probably probaly, problem probelm, pronunciation pronounciation, publicly publically, python pyhton,
        question quesiton, receipt reciept, receive recieve, received recieved, recommend recomend
        reccomend, refund refudn, restaurant restaraunt resturant restaurent, restaurants restaraunts
        resturants, schedule shedule, separate seperate, several severel, should shoud shuld, similar
        similiar, string stirng, subscription subscripton subsciption, successful succesful sucessful,
        symptom symtom, symptoms symtoms, temperature temprature, the teh, their thier, tomorrow tommorow
        tommorrow tomorow, transfer tranfer, truly truely, until untill, vacuum vaccum vacume, warranty
        waranty, website webiste, wednesday wensday wednsday, weird wierd, what waht, which wich whcih, with
        wiht, how hwo, writing writting,
        brulee brûlée, cafe café, cafes cafés, cliche cliché, creme crème, crepe crêpe, crepes crêpes, facade façade,
        jalapeno jalapeño, jalapenos jalapeños, naive naïve, pinata piñata, pokemon pokémon, puree purée""",
            ",",
        ),
    )
    for slip in slips
}
"""From each slip to the word that was meant."""
